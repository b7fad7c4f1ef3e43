"""Softmax along each row, per feature: one online pass for maximum and sum, one to write.

Two forms. `row`: a program owns one row and a tile of features. Each position of a block of DEEP x
BLOCK elements has a maximum and a sum of its own, so that nothing crosses threads inside the loop
and DEEP elements share one correction of the sum. Only the last block has a mask; it is read first
and stays in registers. The second pass goes backwards: what was read last is still in the caches.
Few features a program keep the rows in flight small enough for that. `rows`: a program owns a tile
of short rows, each thread all elements of its rows and features.
"""

from typing import Any

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels._device import (
    DROP,
    KEEP,
    exact_exp,
    exp,
    exp_over,
    finite,
    kept_of,
    limit_of,
    log2,
    narrow,
    span,
    tail_bits,
    whole_blocks,
    widen,
)
from jagged.kernels._elements import empty_like, merged
from jagged.tuning.configs import ConfigTable
from jagged.tuning.launch import launchable
from jagged.tuning.space import Space, powers, up_to_width

# Block sizes: features and elements past the limit; rows and features. Loops: rows, first pass,
# second pass, elements past the limit.
SPACE = [
    Space(
        "row",
        [up_to_width(32, 128), [32]],
        warps=(1, 2, 4, 8),
        loops=[(), (0, 3, 0, 0)],
        DEEP=(1, 2, 4),
        BLOCK=powers(2, 128),
    ),
    Space("rows", [powers(1, 32), up_to_width(32, 128)], warps=(1, 2, 4), BLOCK=(4, 8, 16)),
]
FORWARD = ConfigTable(__file__, "forward", SPACE)
BACKWARD = ConfigTable(__file__, "backward", SPACE)


def forward(values: Tensor, offsets: Tensor, max_length: int | None) -> Tensor:
    rows = offsets.shape[0] - 1
    out = empty_like(values)
    if out.numel() == 0:
        return out
    matrix, target = merged(values, 1), merged(out, 1)
    config = FORWARD.pick(values, matrix.shape[1], rows)
    kernel = {"row": _softmax_row, "rows": _softmax_rows}[config.form]
    bits = tail_bits(matrix.shape[0])
    args = matrix, offsets, target, limit_of(max_length), 1 << bits, bits, narrow(matrix, target)
    kernel(config, *args, values.element_size() == 4, *config.constants.values())
    return out


def backward(grad: Tensor, out: Tensor, offsets: Tensor, max_length: int | None) -> Tensor:
    rows = offsets.shape[0] - 1
    change = empty_like(grad)
    if change.numel() == 0:
        return change
    matrix, weights, target = merged(grad, 1), merged(out, 1), merged(change, 1)
    config = BACKWARD.pick(grad, matrix.shape[1], rows)
    kernel = _softmax_row_backward if config.form == "row" else _softmax_rows_backward
    bits = tail_bits(matrix.shape[0])
    small = narrow(matrix, weights, target)
    args = matrix, weights, offsets, target, limit_of(max_length), 1 << bits, bits, small
    kernel(config, *args, *config.constants.values())
    return change


@launchable()
def _softmax_row(
    values: Tensor,
    offsets: Tensor,
    out: Tensor,
    limit: int,
    parts: int,
    bits: int,
    NARROW: hl.constexpr,
    EXACT: hl.constexpr,
    DEEP: hl.constexpr,
    BLOCK: hl.constexpr,
) -> None:
    """values, out [T, D], offsets [B + 1]; elements of a row at or past `limit` get 0. EXACT is for
    float32 results."""
    total = values.size(0)
    width = hl.specialize(values.size(1))
    step = DEEP * BLOCK
    for tile_row, features in hl.tile([offsets.size(0) - 1 + parts, width], block_size=[1, None]):
        begin, length, is_row = span(offsets, tile_row.begin, bits, total, NARROW)
        kept = kept_of(length, is_row, limit, NARROW)
        whole = whole_blocks(kept, step)
        place = hl.arange(BLOCK)[:, None] + hl.arange(DEEP)[None, :] * BLOCK
        last = whole * step + place
        inside = (last < kept)[:, :, None]
        ending = hl.load(values, [begin + last, features], extra_mask=inside).to(torch.float32)
        ending = torch.where(inside, ending, float("-inf"))
        top = finite(ending.amax(1))
        mass = exp(ending - top[:, None, :]).sum(1)
        for i in hl.grid(whole):
            read = hl.load(values, [begin + i * step + place, features], eviction_policy=KEEP)
            block = widen(read)
            peak_here = block.amax(1)
            higher = torch.where(peak_here > top, peak_here, top)
            mass = mass * exp(top - higher) + exp(block - higher[:, None, :]).sum(1)
            top = higher
        highest = top.amax(0)
        mass_of_all = (mass * exp(top - highest[None, :])).sum(0)
        share = 1.0 / mass_of_all if EXACT else log2(mass_of_all)
        for j in hl.grid(whole):
            index = begin + (whole - 1 - j) * step + place
            again = hl.load(values, [index, features], eviction_policy=DROP)
            below = widen(again) - highest[None, None, :]
            out[index, features] = weigh(below, share[None, None, :], EXACT).to(out.dtype)
        weight = weigh(ending - highest[None, None, :], share[None, None, :], EXACT)
        weight = torch.where(inside, weight, 0.0)
        within = (last < length)[:, :, None]
        hl.store(out, [begin + last, features], weight.to(out.dtype), extra_mask=within)
        for cut in hl.tile(begin + (whole + 1) * step, begin + length):
            out[cut, features] = 0.0


def weigh(x: Any, share: Any, EXACT: bool) -> Any:
    """Device: e to the x, over the mass; `share` is one over it if EXACT, else its logarithm."""
    return exact_exp(x) * share if EXACT else exp_over(x, share)


@launchable()
def _softmax_rows(
    values: Tensor,
    offsets: Tensor,
    out: Tensor,
    limit: int,
    parts: int,
    bits: int,
    NARROW: hl.constexpr,
    EXACT: hl.constexpr,
    BLOCK: hl.constexpr,
) -> None:
    """As `_softmax_row`, for a tile of rows; rows of up to BLOCK elements are read once."""
    total = values.size(0)
    width = hl.specialize(values.size(1))
    for tile_row, features in hl.tile([offsets.size(0) - 1 + parts, width]):
        begin, length, is_row = span(offsets, tile_row.index, bits, total, NARROW)
        kept = kept_of(length, is_row, limit, NARROW)
        place = hl.arange(BLOCK)[None, :]
        longest = length.amax()
        if longest <= BLOCK:
            inside = (place < kept[:, None])[:, :, None]
            index = begin[:, None] + place
            block = hl.load(values, [index, features], extra_mask=inside).to(torch.float32)
            block = torch.where(inside, block, float("-inf"))
            top = finite(block.amax(1))
            below = block - top[:, None, :]
            weight = exact_exp(below) if EXACT else exp(below)
            inverse = 1.0 / weight.sum(1)
            weight = torch.where(inside, weight * inverse[:, None, :], 0.0)
            within = (place < length[:, None])[:, :, None]
            hl.store(out, [index, features], weight.to(out.dtype), extra_mask=within)
        else:
            high = finite(hl.full([tile_row, features], float("-inf"), dtype=torch.float32))
            mass = hl.zeros([tile_row, features], dtype=torch.float32)
            for i in hl.grid((kept.amax() + BLOCK - 1) // BLOCK):
                at = i * BLOCK + place
                counted = (at < kept[:, None])[:, :, None]
                index_read = begin[:, None] + at
                part = hl.load(values, [index_read, features], extra_mask=counted)
                part = torch.where(counted, part.to(torch.float32), float("-inf"))
                peak_here = part.amax(1)
                higher = torch.where(peak_here > high, peak_here, high)
                mass = mass * exp(high - higher) + exp(part - higher[:, None, :]).sum(1)
                high = higher
            share = 1.0 / mass
            for j in hl.grid((longest + BLOCK - 1) // BLOCK):
                at_out = j * BLOCK + place
                chosen = (at_out < kept[:, None])[:, :, None]
                index_write = begin[:, None] + at_out
                again = hl.load(values, [index_write, features], extra_mask=chosen)
                rest = again.to(torch.float32) - high[:, None, :]
                result = (exact_exp(rest) if EXACT else exp(rest)) * share[:, None, :]
                result = torch.where(chosen, result, 0.0).to(out.dtype)
                written = (at_out < length[:, None])[:, :, None]
                hl.store(out, [index_write, features], result, extra_mask=written)


@launchable()
def _softmax_row_backward(
    grad: Tensor,
    out: Tensor,
    offsets: Tensor,
    change: Tensor,
    limit: int,
    parts: int,
    bits: int,
    NARROW: hl.constexpr,
    DEEP: hl.constexpr,
    BLOCK: hl.constexpr,
) -> None:
    """grad, out, change [T, D]: `change = (grad - sum(grad * out)) * out`, the sum over a row."""
    total = grad.size(0)
    width = hl.specialize(grad.size(1))
    step = DEEP * BLOCK
    for tile_row, features in hl.tile([offsets.size(0) - 1 + parts, width], block_size=[1, None]):
        begin, length, is_row = span(offsets, tile_row.begin, bits, total, NARROW)
        kept = kept_of(length, is_row, limit, NARROW)
        whole = whole_blocks(kept, step)
        place = hl.arange(BLOCK)[:, None] + hl.arange(DEEP)[None, :] * BLOCK
        last = whole * step + place
        inside = (last < kept)[:, :, None]
        end_grad = hl.load(grad, [begin + last, features], extra_mask=inside).to(torch.float32)
        end_out = hl.load(out, [begin + last, features], extra_mask=inside).to(torch.float32)
        products = (end_grad * end_out).sum(1)
        for i in hl.grid(whole):
            index = begin + i * step + place
            block = hl.load(grad, [index, features], eviction_policy=KEEP)
            share = hl.load(out, [index, features], eviction_policy=KEEP)
            products = products + (widen(block) * widen(share)).sum(1)
        inner = products.sum(0)
        for j in hl.grid(whole):
            index_out = begin + (whole - 1 - j) * step + place
            again = hl.load(grad, [index_out, features], eviction_policy=DROP)
            weight = hl.load(out, [index_out, features], eviction_policy=DROP)
            moved = (widen(again) - inner[None, None, :]) * widen(weight)
            change[index_out, features] = moved.to(change.dtype)
        ending = (end_grad - inner[None, None, :]) * end_out
        within = (last < length)[:, :, None]
        ending = torch.where(inside, ending, 0.0).to(change.dtype)
        hl.store(change, [begin + last, features], ending, extra_mask=within)
        for cut in hl.tile(begin + (whole + 1) * step, begin + length):
            change[cut, features] = 0.0


@launchable()
def _softmax_rows_backward(
    grad: Tensor,
    out: Tensor,
    offsets: Tensor,
    change: Tensor,
    limit: int,
    parts: int,
    bits: int,
    NARROW: hl.constexpr,
    BLOCK: hl.constexpr,
) -> None:
    """As `_softmax_row_backward`, for a tile of rows; up to BLOCK elements a row are read once."""
    total = grad.size(0)
    width = hl.specialize(grad.size(1))
    for tile_row, features in hl.tile([offsets.size(0) - 1 + parts, width]):
        begin, length, is_row = span(offsets, tile_row.index, bits, total, NARROW)
        kept = kept_of(length, is_row, limit, NARROW)
        place = hl.arange(BLOCK)[None, :]
        longest = length.amax()
        if longest <= BLOCK:
            inside = (place < kept[:, None])[:, :, None]
            index = begin[:, None] + place
            block = hl.load(grad, [index, features], extra_mask=inside).to(torch.float32)
            weight = hl.load(out, [index, features], extra_mask=inside).to(torch.float32)
            inner = (block * weight).sum(1)
            result = torch.where(inside, (block - inner[:, None, :]) * weight, 0.0)
            within = (place < length[:, None])[:, :, None]
            hl.store(change, [index, features], result.to(change.dtype), extra_mask=within)
        else:
            sums = hl.zeros([tile_row, features], dtype=torch.float32)
            for i in hl.grid((kept.amax() + BLOCK - 1) // BLOCK):
                at = i * BLOCK + place
                counted = (at < kept[:, None])[:, :, None]
                index_read = begin[:, None] + at
                part = hl.load(grad, [index_read, features], extra_mask=counted)
                factor = hl.load(out, [index_read, features], extra_mask=counted)
                sums = sums + (part.to(torch.float32) * factor.to(torch.float32)).sum(1)
            for j in hl.grid((longest + BLOCK - 1) // BLOCK):
                at_out = j * BLOCK + place
                chosen = (at_out < kept[:, None])[:, :, None]
                index_write = begin[:, None] + at_out
                again = hl.load(grad, [index_write, features], extra_mask=chosen)
                scale = hl.load(out, [index_write, features], extra_mask=chosen)
                moved = (again.to(torch.float32) - sums[:, None, :]) * scale.to(torch.float32)
                moved = torch.where(chosen, moved, 0.0).to(change.dtype)
                written = (at_out < length[:, None])[:, :, None]
                hl.store(change, [index_write, features], moved, extra_mask=written)
