"""Bytes and FLOPs, counted by hand on tiny cases."""

import dataclasses

import pytest
import torch
from torch.nn import functional

from bench import operands, work
from bench.inputs import Inputs, make_inputs
from bench.shapes import (
    ATTENTION_FEATURES,
    ATTENTION_RECOMMENDERS,
    ATTENTION_SMALL,
    SMALL,
    Attention,
    Shape,
)
from jagged import HSTUMask, ops

# T = 5, B = 3, N = 4, D = 2, two bytes an element, offsets of 4 * 8 bytes.
LENGTHS = torch.tensor([2, 0, 3])
SHAPE = dataclasses.replace(SMALL, rows=3, longest=4, features=2, columns=6, bias=True)


def sizes(shape: Shape = SHAPE) -> work.Sizes:
    return work.sizes(shape, LENGTHS, torch.bfloat16)


@pytest.mark.parametrize(
    ("of", "backward", "elements"),
    [
        (work.reduction, False, 10 + 6),  # values in, sums out
        (work.reduction, True, 6 + 10),
        (work.softmax, False, 20),
        (work.softmax, True, 30),
        (work.layer_norm, False, 20),
        (work.layer_norm, True, 30),
        (work.dense_add, False, 30),  # only the cells that hold an element are read
        (work.dense_add, True, 10 + 24),
        (work.padded_add, False, 10 + 24 + 24),
        (work.padded_add, True, 20),
        (work.row_add, False, 10 + 6 + 10),
        (work.row_add, True, 10 + 6),
        (work.to_padded, False, 10 + 24),
        (work.to_padded, True, 20),
        (work.from_padded, False, 20),
        (work.from_padded, True, 10 + 24),
    ],
)
def test_bytes(of: work.WorkOf, backward: bool, elements: int) -> None:
    assert of(sizes(), backward) == work.Work(2 * elements + 32)


def test_token_layer_norm_has_parameters_and_no_offsets() -> None:
    assert work.token_layer_norm(sizes(), False) == work.Work(2 * (10 + 10 + 2 + 2))
    # Values, gradient and weight in; three gradients out.
    assert work.token_layer_norm(sizes(), True) == work.Work(2 * (30 + 2 + 2 + 2))


def test_the_gated_norm_has_three_parts_and_parameters() -> None:
    # Values, gate, weight and bias in; three parts out.
    assert work.norm_mul_dropout(sizes(), False) == work.Work(2 * (20 + 2 + 2 + 30))
    # Their gradient, values, gate, weight and bias in; four gradients out.
    assert work.norm_mul_dropout(sizes(), True) == work.Work(2 * (30 + 20 + 4 + 20 + 4))


def test_matrix_products() -> None:
    values, out, matrices, bias = 5 * 2, 5 * 6, 3 * 2 * 6, 3 * 6
    forward = 2 * (values + out + matrices + bias) + 32
    assert work.dense_bmm(sizes(), False) == work.Work(forward, 2 * 5 * 2 * 6)
    backward = 2 * (out + 2 * values + 2 * matrices + bias) + 32
    assert work.dense_bmm(sizes(), True) == work.Work(backward, 4 * 5 * 2 * 6)
    plain = dataclasses.replace(SHAPE, bias=False)
    assert work.dense_bmm(sizes(plain), False).bytes == forward - 2 * bias

    x, y, result = 5 * 2, 5 * 6, 3 * 2 * 6
    assert work.jagged_bmm(sizes(), False) == work.Work(2 * (x + y + result) + 32, 2 * 5 * 12)
    assert work.jagged_bmm(sizes(), True) == work.Work(2 * (2 * (x + y) + result) + 32, 4 * 5 * 12)


def test_attention_counts_kept_pairs() -> None:
    shape = dataclasses.replace(SHAPE, attention=Attention(heads=2, value_features=3))
    pairs = 3 + 0 + 6  # causal, of rows of 2, 0 and 3
    q = k = 5 * 2 * 2
    v = out = 5 * 2 * 3
    assert work.hstu_attention(sizes(shape), False) == work.Work(
        2 * (q + k + v + out) + 32, pairs * 2 * (2 * 2 + 2 * 3)
    )
    # q, k, v and the gradient in; three gradients out. Three products over D and two over V.
    assert work.hstu_attention(sizes(shape), True) == work.Work(
        2 * (2 * q + 2 * k + 2 * v + out) + 32, pairs * 2 * (3 * 2 * 2 + 2 * 2 * 3)
    )


def test_backward_is_two_and_a_half_times_forward_where_the_heads_are_square() -> None:
    s = work.sizes(ATTENTION_SMALL, ATTENTION_SMALL.lengths(), torch.float32)
    forward, backward = (work.hstu_attention(s, mode).flops for mode in (False, True))
    assert backward == 2.5 * forward


@pytest.mark.parametrize("window", [0, 1, 2, 5])
@pytest.mark.parametrize("contextual", [0, 1, 2, 4])
@pytest.mark.parametrize("min_full", [0, 2])
@pytest.mark.parametrize("targets", [None, 0, 1, 3, 20])
def test_kept_pairs_are_those_of_the_mask(
    window: int, contextual: int, min_full: int, targets: int | None
) -> None:
    mask = HSTUMask(window, contextual, min_full)
    lengths = torch.tensor([7, 0, 1, 2, 4, 3])
    several = None if targets is None else torch.full((6,), targets)
    expected = [int(mask.keep(int(n), targets).sum()) for n in lengths]
    assert work.kept_pairs(lengths, mask, several).tolist() == expected


def counted_by_the_op(inputs: Inputs) -> int:
    """How many pairs attention itself weighs: all scores are 1 and all values 1."""
    extra = inputs.attention
    assert extra is not None
    ones = torch.ones(inputs.total, 1, 1, dtype=torch.float64)
    weights = ops.hstu_attention(
        *(ones, ones, ones, inputs.offsets),
        max_length=inputs.longest,
        scale=1 / functional.silu(torch.ones((), dtype=torch.float64)).item(),
        mask=extra.options.mask,
        num_targets=extra.num_targets,
    )
    return round(float(weights.sum()))


@pytest.mark.parametrize(
    "shape", [*ATTENTION_FEATURES, *ATTENTION_RECOMMENDERS], ids=lambda shape: shape.name
)
def test_the_products_of_attention_are_those_of_the_pairs_that_it_weighs(shape: Shape) -> None:
    few = dataclasses.replace(shape, rows=3)
    inputs = make_inputs(operands.heads, few, torch.bfloat16, torch.device("cpu"))
    extra = inputs.attention
    assert extra is not None
    pairs = counted_by_the_op(inputs)
    s = work.sizes(few, inputs.lengths, torch.bfloat16, extra.num_targets)
    D, V = few.width, extra.options.value_features
    assert work.hstu_attention(s, False).flops == 2 * extra.options.heads * pairs * (D + V)
    assert work.hstu_attention(s, True).flops == 2 * extra.options.heads * pairs * (3 * D + 2 * V)


def test_the_floor_is_the_larger_of_bytes_and_products() -> None:
    # 1 GB at 1000 GB/s is a millisecond; 4 GFLOP at 2 TFLOP/s are two.
    assert work.Work(10**9).floor_ms(1000, 2) == pytest.approx(1.0)
    assert work.Work(10**9, 4 * 10**9).floor_ms(1000, 2) == pytest.approx(2.0)


def test_the_standard_shapes_match_the_published_floors() -> None:
    """uniform, bf16, at 4.25 TB/s: the milliseconds that the project's targets state."""
    from bench.shapes import UNIFORM

    s = work.sizes(UNIFORM, UNIFORM.lengths(), torch.bfloat16)
    for of, floor in (
        (work.reduction, 0.064),
        (work.softmax, 0.128),
        (work.dense_add, 0.19),
        (work.padded_add, 0.32),
        (work.to_padded, 0.19),
        (work.from_padded, 0.128),
        (work.dense_bmm, 0.16),
        (work.jagged_bmm, 0.16),
    ):
        assert of(s, False).floor_ms(4250, 790) == pytest.approx(floor, rel=0.04)
    backward = work.softmax(s, True).floor_ms(4250, 790)
    assert work.softmax(s, False).floor_ms(4250, 790) + backward == pytest.approx(0.32, rel=0.03)
