"""The vectorised oracles against loops over rows."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bench import oracles
from bench.cases import CASES
from bench.inputs import Inputs, Maker, make_inputs
from bench.oracles import Part, exact, parts
from bench.shapes import ATTENTION_FEATURES, Shape
from jagged import BucketedBias, testing
from jagged.testing import hstu_attention_oracle, row_slices

LENGTHS = torch.tensor([3, 0, 5, 1, 0, 4])
CPU = torch.device("cpu")


def tiny(shape: Shape, features: int | None = 3) -> Shape:
    """The shape with few rows and features; its names and options stay."""
    small = dataclasses.replace(shape, rows=6, longest=6, features=features, columns=2)
    if shape.attention is None:
        return small
    options = dataclasses.replace(shape.attention, heads=2, value_features=4)
    return dataclasses.replace(small, attention=options)


def inputs_of(op: str, shape: Shape, dtype: torch.dtype = torch.float32) -> Inputs:
    case = CASES[op]
    return make_inputs(case.operands, shape, dtype, CPU, LENGTHS)


LOOPS: dict[str, Callable[[Inputs, dict[str, Tensor]], Tensor]] = {
    "sum": lambda i, x: testing.sum_oracle(x["values"], i.offsets),
    "mean": lambda i, x: testing.mean_oracle(x["values"], i.offsets),
    "softmax": lambda i, x: testing.softmax_oracle(x["values"], i.offsets),
    "layer_norm": lambda i, x: testing.layer_norm_oracle(x["values"], i.offsets),
    "token_layer_norm": lambda i, x: testing.token_layer_norm_oracle(
        x["values"], x["weight"], x["bias"]
    ),
    "norm_mul_dropout": lambda i, x: testing.norm_mul_dropout_oracle(
        *x.values(), silu=True, concat=True
    ),
    "dense_add": lambda i, x: testing.dense_add_oracle(x["values"], i.offsets, x["dense"]),
    "padded_add": lambda i, x: testing.padded_add_oracle(x["values"], i.offsets, x["dense"]),
    "row_add": lambda i, x: testing.row_add_oracle(x["values"], i.offsets, x["dense"]),
    "to_padded": lambda i, x: testing.to_padded_oracle(x["values"], i.offsets, i.longest),
    "from_padded": lambda i, x: testing.from_padded_oracle(x["dense"], i.offsets, i.total),
    "dense_bmm": lambda i, x: testing.dense_bmm_oracle(
        x["values"], i.offsets, x["dense"], x["bias"]
    ),
    "jagged_bmm": lambda i, x: testing.jagged_bmm_oracle(x["x"], x["y"], i.offsets),
}


def looped(op: str, inputs: Inputs) -> Tensor:
    """The specification, in float64."""
    return LOOPS[op](inputs, {name: x.double() for name, x in inputs.tensors.items()})


@pytest.mark.parametrize("op", [op for op in CASES if op != "hstu_attention"])
@pytest.mark.parametrize("chunk", [1, 30, 2**27])
def test_an_oracle_is_the_loop_over_rows(
    op: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oracles, "_CHUNK", chunk)
    shape = dataclasses.replace(tiny(CASES[op].small), bias=True)
    inputs = inputs_of(op, shape)
    grad = Maker(torch.float32, CPU, 1)(*CASES[op].result(inputs))
    found = exact(CASES[op].meaning, inputs, grad, CASES[op].result(inputs))

    leaves = inputs.with_grad()
    expected = looped(op, leaves)
    gradients = torch.autograd.grad(expected, leaves.leaves, grad.double())
    torch.testing.assert_close(found.out, expected.detach(), rtol=1e-10, atol=1e-12)
    for got, want in zip(found.gradients, gradients, strict=True):
        torch.testing.assert_close(got, want.double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["sum", "mean", "softmax", "to_padded", "from_padded"])
def test_one_number_an_element(op: str) -> None:
    inputs = inputs_of(op, tiny(CASES[op].small, features=None))
    found = exact(CASES[op].meaning, inputs, None, CASES[op].result(inputs))
    torch.testing.assert_close(found.out, looped(op, inputs))
    assert found.gradients == ()


@pytest.mark.parametrize(
    "shape", [CASES["hstu_attention"].small, *ATTENTION_FEATURES], ids=lambda shape: shape.name
)
@pytest.mark.parametrize("chunk", [1, 2**27])
def test_the_attention_oracle_is_the_loop_over_rows(
    shape: Shape, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oracles, "_CHUNK", chunk)
    case = CASES["hstu_attention"]
    inputs = inputs_of("hstu_attention", tiny(shape))
    grad = Maker(torch.float32, CPU, 1)(*case.result(inputs))
    found = exact(case.meaning, inputs, grad, case.result(inputs))

    extra = inputs.attention
    assert extra is not None
    leaves = inputs.with_grad()
    bias = None
    if extra.options.position:
        table = leaves.tensors.get("time_table")
        bias = BucketedBias(leaves["position_table"], table, extra.timestamps)
    expected = hstu_attention_oracle(
        *(leaves[name] for name in "qkv"),
        leaves.offsets,
        max_length=leaves.longest,
        scale=extra.scale,
        alpha=extra.alpha,
        mask=extra.options.mask,
        num_targets=extra.num_targets,
        bias=bias,
    )
    gradients = torch.autograd.grad(expected, leaves.leaves, grad.double())
    torch.testing.assert_close(found.out, expected.detach(), rtol=1e-6, atol=1e-8)
    for got, want in zip(found.gradients, gradients, strict=True):
        torch.testing.assert_close(got, want.double(), rtol=1e-4, atol=1e-6)


def test_softmax_attention_is_torch_s() -> None:
    case = CASES["hstu_attention"]
    inputs = inputs_of("hstu_attention", tiny(case.small))
    meaning = dataclasses.replace(case.meaning, formula=oracles.softmax_attention)
    found = exact(meaning, inputs, None, case.result(inputs))

    def row(x: dict[str, Tensor], index: int, span: slice) -> Tensor:
        q, k, v = (x[name][span].transpose(0, 1) for name in "qkv")
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.transpose(0, 1)

    filled = [s for s in row_slices(inputs.offsets) if s.stop > s.start]
    wide = {name: x.double() for name, x in inputs.tensors.items()}
    expected = torch.cat([row(wide, 0, span) for span in filled])
    torch.testing.assert_close(found.out, expected)


def test_chunks_hold_every_row_once_and_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracles, "_CHUNK", 100)
    shape = dataclasses.replace(CASES["sum"].small, rows=50, longest=20, features=2)
    inputs = make_inputs(CASES["sum"].operands, shape, torch.float32, CPU)
    found: list[Part] = list(parts(inputs, lambda inputs, n: 2 * n))
    assert sorted(int(i) for part in found for i in part.rows) == list(range(50))
    assert sorted(int(i) for part in found for i in part.elements) == list(range(inputs.total))
    for part in found:
        assert part.rows.shape[0] == 1 or part.rows.shape[0] * part.longest * 2 <= 100
    assert len(found) < 40
