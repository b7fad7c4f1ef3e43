"""Layer norm over a whole row: mean and variance of its elements and features.

One pass keeps mean and squared distance of each position of a block (Welford's update, for DEEP
elements at once): as exact as two passes, and nothing crosses threads before the end of the row.
Another pass writes, backwards, so that what was read last is still in the caches. Forms as in
`softmax`.
"""

# Helion resolves `is not None` when it generates code, so what one such branch sets, others use.
# pyright: reportPossiblyUnboundVariable=false

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels._column_sums import column_sums
from jagged.kernels._device import (
    DROP,
    KEEP,
    full_block,
    narrow,
    span,
    tail_bits,
    whole_blocks,
    widen,
)
from jagged.kernels._elements import empty_like
from jagged.kernels.layer_norm_backward import norm_row_backward, norm_rows_backward
from jagged.tuning.configs import ConfigTable
from jagged.tuning.launch import launchable
from jagged.tuning.space import Space, powers

# Block sizes: elements of the tail; rows. Loops: rows, first pass, second pass, tail.
FORWARD = ConfigTable(
    __file__,
    "forward",
    [
        Space(
            "row",
            [[32]],
            warps=(1, 2, 4, 8, 16),
            loops=[(), (0, 3, 0, 0)],
            DEEP=(1, 2, 4),
            BLOCK=powers(2, 64),
        ),
        Space("rows", [powers(1, 16)], warps=(1, 2, 4), BLOCK=(4, 8, 16)),
    ],
)
BACKWARD = ConfigTable(
    __file__,
    "backward",
    [
        Space(
            "row",
            [[32]],
            warps=(1, 2, 4, 8, 16),
            DEEP=(1, 2),
            BLOCK=powers(2, 128),
            TURNS=(1, 2, 4, 8),
        ),
        Space("rows", warps=(1, 2, 4), BLOCK=(4, 8, 16), ROWS=powers(1, 16), TURNS=(4, 8, 16)),
    ],
)


def forward(
    values: Tensor, offsets: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows = offsets.shape[0] - 1
    total, width = values.shape
    out = empty_like(values)
    if out.numel() == 0:
        mean = torch.zeros(rows, dtype=torch.float32, device=values.device)
        return out, mean, torch.full_like(mean, eps).rsqrt_()
    mean = values.new_empty(rows, dtype=torch.float32)
    rstd = torch.empty_like(mean)
    config = FORWARD.pick(values, width, rows)
    kernel = _norm_row if config.form == "row" else _norm_rows
    bits = tail_bits(total)
    args = values, offsets, weight, bias, out, mean, rstd, eps, 1 << bits, bits
    kernel(config, *args, narrow(values, out), full_block(width), *config.constants.values())
    return out, mean, rstd


def backward(
    grad: Tensor,
    values: Tensor,
    offsets: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    rows = offsets.shape[0] - 1
    total, width = values.shape
    kind = grad.dtype if weight is None else weight.dtype
    change = empty_like(grad)
    nothing = grad.new_empty(0, dtype=kind)
    if change.numel() == 0:
        zeros = grad.new_zeros(width, dtype=kind)
        return (
            change,
            nothing if weight is None else zeros,
            zeros.clone() if has_bias else nothing.clone(),
        )
    config = BACKWARD.pick(grad, width, rows)
    kernel = norm_row_backward if config.form == "row" else norm_rows_backward
    bits = tail_bits(total)
    each = config.constants["TURNS"] * config.constants.get("ROWS", 1)
    programs = -(-(rows + (1 << bits)) // each)
    weight_sums = None if weight is None else grad.new_empty((programs, width), dtype=torch.float32)
    bias_sums = grad.new_empty((programs, width), dtype=torch.float32) if has_bias else None
    args = (
        grad,
        values,
        offsets,
        mean,
        rstd,
        weight,
        change,
        weight_sums,
        bias_sums,
        programs,
        bits,
        narrow(grad, values, change),
        full_block(width),
    )
    kernel(config, *args, *config.constants.values())
    return change, *column_sums(weight_sums, bias_sums, nothing)


@launchable()
def _norm_row(
    values: Tensor,
    offsets: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    out: Tensor,
    mean: Tensor,
    rstd: Tensor,
    eps: float,
    parts: int,
    bits: int,
    NARROW: hl.constexpr,
    FULL: hl.constexpr,
    DEEP: hl.constexpr,
    BLOCK: hl.constexpr,
) -> None:
    """values, out [T, D], offsets [B + 1], weight, bias [D], mean, rstd [B]."""
    total = values.size(0)
    width = hl.specialize(values.size(1))
    step = DEEP * BLOCK
    for tile_row, features in hl.tile([offsets.size(0) - 1 + parts, width], block_size=[1, FULL]):
        row = tile_row.begin
        begin, length, is_row = span(offsets, row, bits, total, NARROW)
        kept = torch.where(is_row, length, 0)
        whole = whole_blocks(kept, step)
        place = hl.arange(BLOCK)[:, None] + hl.arange(DEEP)[None, :] * BLOCK
        last = whole * step + place
        inside = (last < kept)[:, :, None]
        ending = hl.load(values, [begin + last, features], extra_mask=inside).to(torch.float32)
        means = hl.zeros([BLOCK, features], dtype=torch.float32)
        squares = hl.zeros([BLOCK, features], dtype=torch.float32)
        for i in hl.grid(whole):
            read = hl.load(values, [begin + i * step + place, features], eviction_policy=KEEP)
            block = widen(read)
            here = block.sum(1) * (1.0 / DEEP)
            apart = block - here[:, None, :]
            move = here - means
            before = i + hl.zeros([], dtype=torch.float32)
            share = 1.0 / (before + 1.0)
            means = means + move * share
            squares = squares + (apart * apart).sum(1) + move * move * (before * share * DEEP)
        seen = (whole * DEEP).to(torch.float32)
        count = torch.where(kept > 0, kept * width, 1).to(torch.float32)
        centre = (means * seen + ending.sum(1)).sum(1).sum(0) / count
        away = means - centre
        end_apart = torch.where(inside, ending - centre, 0.0)
        spread = squares + away * away * seen + (end_apart * end_apart).sum(1)
        scale = torch.rsqrt(spread.sum(1).sum(0) / count + eps)
        gain = hl.full([features], 1.0, dtype=torch.float32) * scale
        if weight is not None:
            gain = gain * weight[features].to(torch.float32)
        if bias is not None:
            level = bias[features].to(torch.float32)
        for j in hl.grid(whole):
            index = begin + (whole - 1 - j) * step + place
            again = hl.load(values, [index, features], eviction_policy=DROP)
            normed = (widen(again) - centre) * gain[None, None, :]
            if bias is not None:
                normed = normed + level[None, None, :]
            out[index, features] = normed.to(out.dtype)
        end_apart = end_apart * gain[None, None, :]
        if bias is not None:
            end_apart = end_apart + level[None, None, :]
        within = (last < length)[:, :, None]
        written = torch.where(inside, end_apart, 0.0).to(out.dtype)
        hl.store(out, [begin + last, features], written, extra_mask=within)
        for cut in hl.tile(begin + (whole + 1) * step, begin + length):
            out[cut, features] = 0.0
        hl.store(mean, [row], centre, extra_mask=is_row)
        hl.store(rstd, [row], scale, extra_mask=is_row)


@launchable()
def _norm_rows(
    values: Tensor,
    offsets: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    out: Tensor,
    mean: Tensor,
    rstd: Tensor,
    eps: float,
    parts: int,
    bits: int,
    NARROW: hl.constexpr,
    FULL: hl.constexpr,
    BLOCK: hl.constexpr,
) -> None:
    """As `_norm_row`, for a tile of rows; rows of up to BLOCK elements are read once."""
    total = values.size(0)
    width = hl.specialize(values.size(1))
    for tile_row, features in hl.tile(
        [offsets.size(0) - 1 + parts, width], block_size=[None, FULL]
    ):
        begin, length, is_row = span(offsets, tile_row.index, bits, total, NARROW)
        kept = torch.where(is_row, length, 0)
        count = torch.where(kept > 0, kept * width, 1).to(torch.float32)
        place = hl.arange(BLOCK)[None, :]
        longest = length.amax()
        if weight is not None:
            gain = weight[features].to(torch.float32)
        if bias is not None:
            level = bias[features].to(torch.float32)
        if longest <= BLOCK:
            inside = (place < kept[:, None])[:, :, None]
            index = begin[:, None] + place
            block = hl.load(values, [index, features], extra_mask=inside).to(torch.float32)
            centre = block.sum(1).sum(1) / count
            apart = torch.where(inside, block - centre[:, None, None], 0.0)
            scale = torch.rsqrt((apart * apart).sum(1).sum(1) / count + eps)
            apart = apart * scale[:, None, None]
            if weight is not None:
                apart = apart * gain[None, None, :]
            if bias is not None:
                apart = apart + level[None, None, :]
            within = (place < length[:, None])[:, :, None]
            written = torch.where(inside, apart, 0.0).to(out.dtype)
            hl.store(out, [index, features], written, extra_mask=within)
            hl.store(mean, [tile_row.index], centre, extra_mask=is_row)
            hl.store(rstd, [tile_row.index], scale, extra_mask=is_row)
        else:
            trips = (kept.amax() + BLOCK - 1) // BLOCK
            sums = hl.zeros([tile_row, features], dtype=torch.float32)
            for i in hl.grid(trips):
                at = i * BLOCK + place
                counted = (at < kept[:, None])[:, :, None]
                part = hl.load(values, [begin[:, None] + at, features], extra_mask=counted)
                sums = sums + part.to(torch.float32).sum(1)
            middle = sums.sum(1) / count
            squares = hl.zeros([tile_row, features], dtype=torch.float32)
            for k in hl.grid(trips):
                at_look = k * BLOCK + place
                looked = (at_look < kept[:, None])[:, :, None]
                off = hl.load(values, [begin[:, None] + at_look, features], extra_mask=looked)
                away = torch.where(looked, off.to(torch.float32) - middle[:, None, None], 0.0)
                squares = squares + (away * away).sum(1)
            spread = torch.rsqrt(squares.sum(1) / count + eps)
            for j in hl.grid((longest + BLOCK - 1) // BLOCK):
                at_out = j * BLOCK + place
                chosen = (at_out < kept[:, None])[:, :, None]
                index_write = begin[:, None] + at_out
                again = hl.load(values, [index_write, features], extra_mask=chosen)
                normed = (again.to(torch.float32) - middle[:, None, None]) * spread[:, None, None]
                if weight is not None:
                    normed = normed * gain[None, None, :]
                if bias is not None:
                    normed = normed + level[None, None, :]
                normed = torch.where(chosen, normed, 0.0).to(out.dtype)
                reached = (at_out < length[:, None])[:, :, None]
                hl.store(out, [index_write, features], normed, extra_mask=reached)
            hl.store(mean, [tile_row.index], middle, extra_mask=is_row)
            hl.store(rstd, [tile_row.index], spread, extra_mask=is_row)
