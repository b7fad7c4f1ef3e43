"""Strided operands and gradients, results that are new tensors, and results under autocast."""

import pytest
import torch
from torch import Tensor

from tests.ops.battery import (
    CASES,
    WIDE_CASES,
    Arguments,
    Make,
    OpCase,
    assert_near,
    gradients,
    outgoing,
    widest,
)

LENGTHS = [3, 0, 5, 2]


def strided(value: object) -> object:
    """The same numbers as a `split` view of a wider tensor: gaps between rows, none within."""
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.ndim < 2:
        return value
    wide = torch.cat([torch.full_like(value, torch.nan), value, torch.zeros_like(value)], -1)
    view = wide.split(value.shape[-1], dim=-1)[1]
    assert view.stride(-1) == 1
    assert not view.is_contiguous()
    return view


def by_heads(value: object) -> object:
    """The same numbers laid out with the first two dimensions exchanged, as after a transpose."""
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.ndim < 3:
        return value
    return value.transpose(0, 1).contiguous().transpose(0, 1)


@pytest.mark.parametrize("layout", [strided, by_heads])
@pytest.mark.parametrize("case", WIDE_CASES, ids=str)
def test_strided_operands(case: OpCase, layout: object, device: torch.device) -> None:
    make = Make(LENGTHS, device, widest(device), tail=2)
    arguments = case.make(make)
    views: Arguments = {name: layout(value) for name, value in arguments.items()}  # type: ignore[operator]
    out = case.call(arguments)
    grad = outgoing(case, out, make)
    _, expected = gradients(case, arguments, grad, case.operands)
    leaves = {
        name: value.detach().requires_grad_() if name in case.operands else value
        for name, value in views.items()
    }
    result = case.call(leaves)
    assert result.is_contiguous()
    assert torch.equal(result, out)
    found = torch.autograd.grad(result, [leaves[name] for name in case.operands], grad)
    for name, gradient in zip(case.operands, found, strict=True):
        assert torch.equal(gradient, expected[name])


@pytest.mark.parametrize("case", WIDE_CASES, ids=str)
def test_strided_gradients(case: OpCase, device: torch.device) -> None:
    """Expanded (from `.sum()`), transposed and split incoming gradients."""
    make = Make(LENGTHS, device, widest(device))
    arguments = case.make(make)
    out = case.call(arguments)
    dense = outgoing(case, out, make)
    expanded = torch.ones((), device=device, dtype=out.dtype).expand(out.shape)
    transposed = dense.transpose(0, -1).contiguous().transpose(0, -1)
    for grad in (expanded, transposed, strided(dense)):
        assert isinstance(grad, Tensor)
        assert not grad.is_contiguous()
        _, expected = gradients(case, arguments, grad.contiguous(), case.operands)
        _, found = gradients(case, arguments, grad, case.operands)
        for name in case.operands:
            assert torch.equal(found[name], expected[name])


def test_a_column_of_one_feature_may_have_any_stride(device: torch.device) -> None:
    """FBGEMM once gave wrong rows for such views."""
    make = Make(LENGTHS, device, widest(device))
    wide = make.dense(make.total, 4)
    for case in CASES:
        arguments = case.make(make)
        if case.label == "" and "values" in arguments and "dense" not in arguments:
            view = wide[:, 1:2]
            assert view.stride(-1) == 1
            odd = view.as_strided(view.shape, (4, 7), 1)
            assert torch.equal(
                case.call({**arguments, "values": odd}),
                case.call({**arguments, "values": view.contiguous()}),
            )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_are_new_tensors_that_may_be_changed(case: OpCase, device: torch.device) -> None:
    make = Make(LENGTHS, device, widest(device), tail=1)
    arguments = case.make(make)
    kept = {n: v.clone() for n, v in arguments.items() if isinstance(v, Tensor)}
    for names in ((), case.operands):
        leaves = {
            name: value.detach().requires_grad_(name in names)
            if isinstance(value, Tensor) and value.is_floating_point()
            else value
            for name, value in arguments.items()
        }
        out = case.call(leaves)
        assert out.is_contiguous()
        assert out.requires_grad is bool(names)
        with torch.no_grad():
            out.fill_(7)
        out += 1  # autograd refuses this for a view that a custom function returns
        for name, before in kept.items():
            assert torch.equal(arguments[name].nan_to_num(), before.nan_to_num()), name


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_gradient_modes(case: OpCase, device: torch.device) -> None:
    make = Make(LENGTHS, device, widest(device))
    arguments = case.make(make)
    expected = case.call(arguments)
    leaves = {
        name: value.requires_grad_() if name in case.operands else value
        for name, value in arguments.items()
    }
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            out = case.call(leaves)
        assert not out.requires_grad
        assert torch.equal(out, expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_autocast_changes_nothing(case: OpCase, device: torch.device) -> None:
    """The op computes in the dtype of its operands; layers cast before, if they want to."""
    make = Make(LENGTHS, device, torch.float32)
    arguments = case.make(make)
    out = case.call(arguments)
    grad = outgoing(case, out, make)
    expected, expected_grads = gradients(case, arguments, grad, case.operands)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        result, grads = gradients(case, arguments, grad, case.operands)
    assert result.dtype == torch.float32
    assert_near(result, expected)
    for name in case.operands:
        assert_near(grads[name], expected_grads[name])
