"""Layer norm times a gate, with dropout: what stands between HSTU's attention and its output.

Each direction is one pass over memory: the forward keeps mean and 1 / std alone, the backward
computes everything else again, the dropout's decisions included, which are a hash of the seed and
the place (`jagged.ops.norm_mul_dropout` states it).
"""

# Helion resolves `is not None` when it generates code, so what one such branch sets, others use.
# pyright: reportPossiblyUnboundVariable=false

from typing import Any

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels._column_sums import column_sums
from jagged.kernels._device import exp, full_block, reciprocal
from jagged.kernels._elements import empty_like
from jagged.tuning.configs import ConfigTable
from jagged.tuning.launch import launchable
from jagged.tuning.space import Space, powers

# Block sizes: elements. The width of a table's entry is that of one norm: D, or V of a head.
FORWARD = ConfigTable(__file__, "_gate", [Space(blocks=[powers(1, 64)], warps=(1, 2, 4, 8, 16))])
BACKWARD = ConfigTable(
    __file__,
    "_gate_backward",
    [Space(warps=(1, 2, 4, 8, 16), BLOCK=powers(1, 64), PROGRAMS=(528, 1056, 2112))],
)

# The hash, in int32: the multipliers are 0x7FEB352D, 0x846CA68B, 0x9E3779B9, and 0x2C9277B5 with
# its third power.
FIRST, SECOND, COLUMN, PART, THIRD_PART = (
    2146121005,
    -2073254261,
    -1640531527,
    747796405,
    -895109107,
)


def forward(
    values: Tensor,
    u: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    silu: bool,
    concat: bool,
    dropout: float,
    seed: Tensor | None,
    offsets: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    heads = 0
    if values.ndim == 3:
        heads, values, u = values.shape[1], values.flatten(1), u.flatten(1)
    total, columns = values.shape
    shape = total, (3 if concat else 1) * columns
    out = values.new_empty(shape)
    mean = values.new_empty((total, heads or 1), dtype=torch.float32)
    rstd = values.new_empty((total, heads or 1), dtype=torch.float32)
    if out.numel() == 0:
        return out, mean.zero_(), rstd.zero_()
    width = columns // (heads or 1)
    _gate(
        FORWARD.pick(values, width, total),
        values,
        u,
        weight,
        bias,
        seed,
        offsets,
        out,
        mean,
        rstd,
        eps,
        *_dropout(dropout),
        heads,
        silu,
        concat,
        full_block(width),
    )
    return out, mean, rstd


def backward(
    grad: Tensor,
    values: Tensor,
    u: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    has_bias: bool,
    silu: bool,
    concat: bool,
    dropout: float,
    seed: Tensor | None,
    offsets: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    change, change_u = empty_like(values), empty_like(u)
    kind = values.dtype if weight is None else weight.dtype
    nothing = values.new_empty(0, dtype=kind)
    if change.numel() == 0:
        return (
            change,
            change_u,
            nothing if weight is None else torch.zeros_like(weight),
            torch.zeros_like(bias) if bias is not None and has_bias else nothing.clone(),
        )
    heads, to_values, to_u = 0, change, change_u
    if values.ndim == 3:
        heads = values.shape[1]
        values, u, to_values, to_u = (x.flatten(1) for x in (values, u, change, change_u))
    total, columns = values.shape
    width = columns // (heads or 1)
    config = BACKWARD.pick(values, width, total)
    block = config.constants["BLOCK"]
    programs = min(config.constants["PROGRAMS"], -(-total // block))
    weight_sums = (
        None if weight is None else values.new_empty((programs, columns), dtype=torch.float32)
    )
    bias_sums = values.new_empty((programs, columns), dtype=torch.float32) if has_bias else None
    _gate_backward(
        config,
        grad,
        values,
        u,
        mean,
        rstd,
        weight,
        bias,
        seed,
        offsets,
        to_values,
        to_u,
        weight_sums,
        bias_sums,
        *_dropout(dropout),
        programs,
        heads,
        silu,
        concat,
        full_block(width),
        block,
    )
    if heads == 0:
        return change, change_u, *column_sums(weight_sums, bias_sums, nothing)
    wide = column_sums(weight_sums, bias_sums, nothing.float())
    # A parameter of a head is one number: [H V] or [0] to [H] or [0].
    weight_grad, bias_grad = (sums.view(-1, width).sum(1).to(kind) for sums in wide)
    return change, change_u, weight_grad, bias_grad


def _dropout(probability: float) -> tuple[int, float]:
    """What the hash, as a signed number, has to reach, and the factor of what is kept."""
    threshold = min(round(probability * 2**32), 2**32 - 1) - 2**31
    return threshold, 1 / (1 - probability)


def _mix(x: Any) -> Any:
    """A bijection of int32 in which every bit depends on all. `>>` keeps the sign, hence `&`."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * FIRST
    x = (x ^ ((x >> 15) & 0x1FFFF)) * SECOND
    return x ^ ((x >> 16) & 0xFFFF)


def _keys(seed: Any, index: Any) -> tuple[Any, Any]:
    """Two int32 for each element."""
    whole = hl.load(seed, [0])
    first = _mix(index.to(torch.int32) ^ whole.to(torch.int32))
    return first, _mix(first ^ (whole >> 32).to(torch.int32))


def _numbers(first: Any, second: Any, column: Any) -> Any:
    """One int32 for each element and column: `_mix` with the other key halfway, once for two
    columns, since the threads that own both compute it once."""
    column = column.to(torch.int32)
    x = first + (column >> 1) * COLUMN
    x = ((x ^ ((x >> 16) & 0xFFFF)) * FIRST) ^ second
    x = (x ^ ((x >> 15) & 0x1FFFF)) * SECOND
    x = x ^ ((x >> 16) & 0xFFFF)
    return x * (1 + (column & 1) * (THIRD_PART - 1))


def _share(number: Any, threshold: Any, factor: Any) -> Any:
    """What dropout multiplies by: to select after the product would unpack what is rounded."""
    return torch.where(number >= threshold, factor, 0.0)


@launchable()
def _gate(
    values: Tensor,
    u: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    seed: Tensor | None,
    offsets: Tensor | None,
    out: Tensor,
    mean: Tensor,
    rstd: Tensor,
    eps: float,
    threshold: int,
    factor: float,
    HEADS: hl.constexpr,
    SILU: hl.constexpr,
    CONCAT: hl.constexpr,
    FULL: hl.constexpr,
) -> None:
    """values, u [T, H V], weight, bias [H V], or [H] where HEADS is not 0, seed [1], offsets
    [B + 1], out [T, H V] or [T, 3 H V], mean, rstd [T, H].

    A program owns a tile of elements of one head. Those of the capacity tail get 0 everywhere.
    """
    columns = hl.specialize(values.size(1))
    heads = HEADS if HEADS else 1
    width = columns // heads
    for tile, one, features in hl.tile([values.size(0), heads, width], block_size=[None, 1, FULL]):
        head = one.begin
        column = head * width + features.index
        filled = (features.index < width)[None, :]
        kept = tile.index < values.size(0)
        if offsets is not None:
            kept = tile.index < offsets[offsets.size(0) - 1]
        inside = kept[:, None] & filled
        plain = hl.load(values, [tile, column], extra_mask=inside).to(torch.float32)
        opened = hl.load(u, [tile, column], extra_mask=inside).to(torch.float32)
        if SILU:
            opened = opened * reciprocal(1.0 + exp(-opened))
        centre = plain.sum(1) / width
        normed = plain - centre[:, None]
        scale = torch.rsqrt((normed * normed).sum(1) / width + eps)
        if offsets is not None:
            scale = torch.where(kept, scale, 0.0)
        normed = normed * scale[:, None]
        if weight is not None:
            if HEADS:
                normed = normed * weight[head].to(torch.float32)
            else:
                normed = normed * weight[features].to(torch.float32)[None, :]
        if bias is not None:
            if HEADS:
                normed = normed + bias[head].to(torch.float32)
            else:
                normed = normed + bias[features].to(torch.float32)[None, :]
        gated = normed * opened
        if seed is not None:
            first, second = _keys(seed, tile.index)
            number = _numbers(first[:, None], second[:, None], column[None, :])
            if CONCAT:
                opened = opened * _share(number, threshold, factor)
                number = number * PART
                plain = plain * _share(number, threshold, factor)
                number = number * PART
            gated = gated * _share(number, threshold, factor)
        if CONCAT:
            hl.store(out, [tile, column], opened.to(out.dtype), extra_mask=filled)
            hl.store(out, [tile, column + columns], plain.to(out.dtype), extra_mask=filled)
            hl.store(out, [tile, column + 2 * columns], gated.to(out.dtype), extra_mask=filled)
        else:
            hl.store(out, [tile, column], gated.to(out.dtype), extra_mask=filled)
        mean[tile, head] = centre
        rstd[tile, head] = scale


@launchable()
def _gate_backward(
    grad: Tensor,
    values: Tensor,
    u: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    seed: Tensor | None,
    offsets: Tensor | None,
    change: Tensor,
    change_u: Tensor,
    weight_sums: Tensor | None,
    bias_sums: Tensor | None,
    threshold: int,
    factor: float,
    programs: int,
    HEADS: hl.constexpr,
    SILU: hl.constexpr,
    CONCAT: hl.constexpr,
    FULL: hl.constexpr,
    BLOCK: hl.constexpr,
) -> None:
    """grad [T, H V] or [T, 3 H V], values, u, change, change_u [T, H V], mean, rstd [T, H], weight,
    bias [H V], or [H] where HEADS is not 0, seed [1], offsets [B + 1], sums [programs, H V].

    A program owns every `programs`-th block of elements of one head and its own sums for the
    gradients of weight and bias, which another launch adds up: deterministic.
    """
    total = values.size(0)
    columns = hl.specialize(values.size(1))
    heads = HEADS if HEADS else 1
    width = columns // heads
    for tile_program, one, features in hl.tile([programs, heads, width], block_size=[1, 1, FULL]):
        program = tile_program.begin
        head = one.begin
        column = head * width + features.index
        filled = (features.index < width)[None, :]
        if weight is not None:
            if HEADS:
                gain = weight[head].to(torch.float32)
            else:
                gain = weight[features].to(torch.float32)[None, :]
        if bias is not None:
            if HEADS:
                shift = bias[head].to(torch.float32)
            else:
                shift = bias[features].to(torch.float32)[None, :]
        along = hl.zeros([BLOCK, features], dtype=torch.float32)
        level = hl.zeros([BLOCK, features], dtype=torch.float32)
        blocks = (total + BLOCK - 1) // BLOCK
        for turn in hl.grid((blocks - program + programs - 1) // programs):
            index = (turn * programs + program) * BLOCK + hl.arange(BLOCK)
            kept = index < total
            within = kept[:, None] & filled
            if offsets is not None:
                kept = index < offsets[offsets.size(0) - 1]
            inside = kept[:, None] & filled
            normed = hl.load(values, [index, column], extra_mask=inside).to(torch.float32)
            gate = hl.load(u, [index, column], extra_mask=inside).to(torch.float32)
            scale = hl.load(rstd, [index, head], extra_mask=kept)[:, None]
            centre = hl.load(mean, [index, head], extra_mask=kept)[:, None]
            normed = (normed - centre) * scale
            if CONCAT:
                to_u = hl.load(grad, [index, column], extra_mask=inside).to(torch.float32)
                to_values = hl.load(grad, [index, column + columns], extra_mask=inside)
                to_values = to_values.to(torch.float32)
                block = hl.load(grad, [index, column + 2 * columns], extra_mask=inside)
            else:
                block = hl.load(grad, [index, column], extra_mask=inside)
            block = block.to(torch.float32)
            if seed is not None:
                first, second = _keys(seed, index)
                number = _numbers(first[:, None], second[:, None], column[None, :])
                if CONCAT:
                    to_u = to_u * _share(number, threshold, factor)
                    number = number * PART
                    to_values = to_values * _share(number, threshold, factor)
                    number = number * PART
                block = block * _share(number, threshold, factor)
            result = normed
            if weight is not None:
                result = result * gain
            if bias is not None:
                result = result + shift
            gate_change = block * result
            if CONCAT:
                gate_change = gate_change + to_u
            if SILU:
                share = reciprocal(1.0 + exp(-gate))
                opened = gate * share
                gate_change = gate_change * (share + opened * (1.0 - share))
                block = block * opened
            else:
                block = block * gate
            if weight_sums is not None:
                along = along + block * normed
            if bias_sums is not None:
                level = level + block
            if weight is not None:
                block = block * gain
            average = block.sum(1) / width
            slope = (block * normed).sum(1) / width
            block = (block - average[:, None] - normed * slope[:, None]) * scale
            if CONCAT:
                block = block + to_values
            hl.store(change, [index, column], block.to(change.dtype), extra_mask=within)
            hl.store(change_u, [index, column], gate_change.to(change_u.dtype), extra_mask=within)
        if weight_sums is not None:
            hl.store(
                weight_sums, [program, column], along.sum(0), extra_mask=features.index < width
            )
        if bias_sums is not None:
            hl.store(bias_sums, [program, column], level.sum(0), extra_mask=features.index < width)
