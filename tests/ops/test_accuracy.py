"""The error budget of every op in every dtype, and sums of many elements."""

import pytest
import torch

import jagged
from jagged.testing import assert_accurate, row_slices
from tests.ops.battery import (
    CASES,
    JAGGED_CASES,
    Make,
    OpCase,
    gradients,
    oracle_gradients,
    outgoing,
)

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
UNSHARED_CASES = [case for case in JAGGED_CASES if not case.shared]
LONG_CASES = [case for case in CASES if case.label == "" and case.op != "token_layer_norm"]
BATCHES = {"short rows": [3, 0, 5, 1, 0, 9, 2], "a long row": [1, 0, 300, 7]}


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_within_the_budget(
    case: OpCase, dtype: torch.dtype, batch: str, device: torch.device
) -> None:
    make = Make(BATCHES[batch], device, dtype, tail=2)
    arguments = case.make(make)
    grad = outgoing(case, case.call(arguments), make)
    out, grads = gradients(case, arguments, grad, case.operands)
    exact, exact_grads = oracle_gradients(case, arguments, grad)
    plain, plain_grads = oracle_gradients(case, arguments, grad, torch.float32)
    assert_accurate(out, exact, plain)
    for name in case.operands:
        assert_accurate(grads[name], exact_grads[name], plain_grads[name], name=name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("op", ["layer_norm", "token_layer_norm"])
@pytest.mark.parametrize("given", [("weight",), ("bias",), ("weight", "bias")], ids=str)
def test_float32_parameters_with_16_bit_values(
    op: str, given: tuple[str, ...], dtype: torch.dtype, device: torch.device
) -> None:
    """The result has the dtype of the values, the gradients those of the parameters, unrounded."""
    make = Make([3, 0, 40, 5], device, dtype, tail=2)
    parameters = Make([], device, torch.float32)
    arguments = {"values": make.jagged(16), "offsets": make.offsets()}
    arguments |= {name: parameters.dense(16) for name in given}
    case = OpCase(op, lambda _: arguments, ("values", *given), shared=given)
    grad = outgoing(case, case.call(arguments), make)
    out, grads = gradients(case, arguments, grad, case.operands)
    exact, exact_grads = oracle_gradients(case, arguments, grad)
    plain, plain_grads = oracle_gradients(case, arguments, grad, torch.float32)
    assert out.dtype == dtype
    assert_accurate(out, exact, plain)
    for name in case.operands:
        assert grads[name].dtype == arguments[name].dtype
        assert_accurate(grads[name], exact_grads[name], plain_grads[name], name=name)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", UNSHARED_CASES, ids=str)
def test_small_rows_beside_large_ones(
    case: OpCase, dtype: torch.dtype, device: torch.device
) -> None:
    """A row of numbers around 1/100 is as exact, by its own measure, beside one around 100."""
    scales = torch.tensor([100.0, 1.0, 0.01, 1.0], device=device)
    make = Make([20, 0, 20, 3], device, dtype)
    arguments = case.make(make)
    slices = row_slices(arguments["offsets"])
    for name in case.operands:
        for i, row in enumerate(slices):
            arguments[name][row if name in case.ragged else i] *= scales[i].to(dtype)
    out = case.call(arguments)
    grad = outgoing(case, out, make)
    exact, _ = oracle_gradients(case, arguments, grad)
    plain, _ = oracle_gradients(case, arguments, grad, torch.float32)
    for i, row in enumerate(slices):
        part = row if case.result == "elements" else slice(i, i + 1)
        assert_accurate(out[part], exact[part], plain[part], name=f"row {i}")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_4096_ones_are_4096(dtype: torch.dtype, device: torch.device) -> None:
    """A sum in bfloat16 stops at 256, as fbgemm's segment_sum_csr does."""
    offsets = torch.tensor([0, 0, 4096, 4098], device=device)
    ones = torch.ones(4098, 2, device=device, dtype=dtype)
    assert jagged.ops.sum(ones, offsets).tolist() == [[0, 0], [4096, 4096], [2, 2]]
    assert jagged.ops.mean(ones, offsets).tolist() == [[0, 0], [1, 1], [1, 1]]
    assert jagged.ops.jagged_bmm(ones, ones, offsets)[1].tolist() == [[4096, 4096]] * 2
    dense = torch.zeros(3, 2, device=device, dtype=dtype, requires_grad=True)
    jagged.ops.row_add(ones, offsets, dense).sum().backward()
    assert dense.grad is not None
    assert dense.grad.tolist() == [[0, 0], [4096, 4096], [2, 2]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_the_mean_of_10000_half_precision_numbers(dtype: torch.dtype, device: torch.device) -> None:
    """pytorch_scatter was off by a factor of five."""
    values = torch.full((10_000,), 0.5, device=device, dtype=dtype)
    offsets = torch.tensor([0, 10_000], device=device)
    assert jagged.ops.mean(values, offsets).tolist() == [0.5]
    assert jagged.ops.softmax(values, offsets).float().sum().item() == pytest.approx(1, rel=5e-3)


@pytest.mark.parametrize("case", LONG_CASES, ids=str)
def test_a_float32_row_of_thousands(case: OpCase, device: torch.device) -> None:
    """Elements added one by one in float32 would lose two digits against torch's tree."""
    make = Make([5000, 3], device, torch.float32)
    arguments = case.make(make)
    grad = outgoing(case, case.call(arguments), make)
    out, grads = gradients(case, arguments, grad, case.operands)
    exact, exact_grads = oracle_gradients(case, arguments, grad)
    plain, plain_grads = oracle_gradients(case, arguments, grad, torch.float32)
    assert_accurate(out, exact, plain)
    for name in case.operands:
        assert_accurate(grads[name], exact_grads[name], plain_grads[name], name=name)
