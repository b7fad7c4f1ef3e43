"""Gradient kernels of `layer_norm`.

With `grad` g, normed values y = (x - mean) * rstd and weight w, for each row of n elements:

    change = rstd * (g * w - sum(g * w) / (n * D) - y * sum(g * w * y) / (n * D))

The sums over a row of g and of g * y, kept by feature, give both: multiplied by w and added up they
are the row's sums, and added up over all rows they are the gradients of bias and weight. Each
program writes its own, [programs, D] in float32, and another launch adds them: deterministic.
"""

# Helion resolves `is not None` when it generates code, so what one such branch sets, others use.
# pyright: reportPossiblyUnboundVariable=false

from typing import Any

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels._device import DROP, KEEP, span, whole_blocks, widen
from jagged.tuning.launch import launchable


@launchable()
def norm_row_backward(
    grad: Tensor,
    values: Tensor,
    offsets: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    change: Tensor,
    weight_sums: Tensor | None,
    bias_sums: Tensor | None,
    programs: int,
    bits: int,
    NARROW: hl.constexpr,
    FULL: hl.constexpr,
    DEEP: hl.constexpr,
    BLOCK: hl.constexpr,
    TURNS: hl.constexpr,
) -> None:
    """grad, values, change [T, D], offsets [B + 1], mean, rstd [B], weight [D], sums [P, D].

    A trip takes DEEP parts of [BLOCK, features], which keep a thread's registers few: nothing but
    the sums lives on. The last trip alone has a mask, and comes first in both passes.
    """
    total = values.size(0)
    width = hl.specialize(values.size(1))
    step = DEEP * BLOCK
    for tile_program, features in hl.tile([programs, width], block_size=[1, FULL]):
        program = tile_program.begin
        all_sums = hl.zeros([features], dtype=torch.float32)
        all_products = hl.zeros([features], dtype=torch.float32)
        if weight is not None:
            gain = weight[features].to(torch.float32)
        for turn in hl.grid(TURNS):
            row = program * TURNS + turn
            begin, length, is_row = span(offsets, row, bits, total, NARROW)
            kept = torch.where(is_row, length, 0)
            if kept > 0:
                centre = hl.load(mean, [row])
                scale = hl.load(rstd, [row])
                whole = whole_blocks(kept, step)
                last = whole * step + hl.arange(BLOCK)
                start = begin + hl.arange(BLOCK)
                sums = hl.zeros([BLOCK, features], dtype=torch.float32)
                products = hl.zeros([BLOCK, features], dtype=torch.float32)
                for part in hl.static_range(DEEP):
                    place = last + part * BLOCK
                    inside = (place < kept)[:, None]
                    sums, products = _add(
                        sums, products, grad, values, [begin + place, features], inside, centre
                    )
                for i in hl.grid(whole):
                    for part in hl.static_range(DEEP):
                        index = [start + i * step + part * BLOCK, features]
                        sums, products = _add(sums, products, grad, values, index, None, centre)
                by_feature = sums.sum(0)
                along = products.sum(0) * scale
                if bias_sums is not None:
                    all_sums = all_sums + by_feature
                if weight_sums is not None:
                    all_products = all_products + along
                stretch = hl.full([features], 1.0, dtype=torch.float32) * scale
                if weight is not None:
                    by_feature = by_feature * gain
                    along = along * gain
                    stretch = stretch * gain
                count = (kept * width).to(torch.float32)
                level = by_feature.sum(0) / count * scale
                slope = along.sum(0) / count * scale * scale
                line = stretch, level, slope, centre
                for part in hl.static_range(DEEP):
                    place = last + part * BLOCK
                    inside = (place < kept)[:, None]
                    _write(change, grad, values, [begin + place, features], inside, *line)
                for j in hl.grid(whole):
                    for part in hl.static_range(DEEP):
                        index = [start + (whole - 1 - j) * step + part * BLOCK, features]
                        _write(change, grad, values, index, None, *line)
            for cut in hl.tile(begin + kept, begin + length):
                change[cut, features] = 0.0
        if bias_sums is not None:
            bias_sums[program, features] = all_sums
        if weight_sums is not None:
            weight_sums[program, features] = all_products


def _add(
    sums: Any, products: Any, grad: Any, values: Any, index: Any, inside: Any, centre: Any
) -> tuple[Any, Any]:
    """Device: the sums [BLOCK, features] of g and g * (x - mean), with those at `index` added.

    What is read stays in the caches if it can: `_write` reads it again.
    """
    block = hl.load(grad, index, extra_mask=inside, eviction_policy=KEEP)
    value = hl.load(values, index, extra_mask=inside, eviction_policy=KEEP)
    block, apart = widen(block), widen(value) - centre
    return sums + block, products + block * apart


def _write(
    change: Any,
    grad: Any,
    values: Any,
    index: Any,
    inside: Any,
    stretch: Any,
    level: Any,
    slope: Any,
    centre: Any,
) -> None:
    """Device: `change` at `index`, g * stretch - level - (x - mean) * slope."""
    block = hl.load(grad, index, extra_mask=inside, eviction_policy=DROP)
    value = hl.load(values, index, extra_mask=inside, eviction_policy=DROP)
    moved = widen(block) * stretch.unsqueeze(0) - level - (widen(value) - centre) * slope
    hl.store(change, index, moved.to(change.dtype), extra_mask=inside)


@launchable()
def norm_rows_backward(
    grad: Tensor,
    values: Tensor,
    offsets: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    change: Tensor,
    weight_sums: Tensor | None,
    bias_sums: Tensor | None,
    programs: int,
    bits: int,
    NARROW: hl.constexpr,
    FULL: hl.constexpr,
    BLOCK: hl.constexpr,
    ROWS: hl.constexpr,
    TURNS: hl.constexpr,
) -> None:
    """As `norm_row_backward`, for ROWS rows a turn; up to BLOCK elements a row are read once."""
    total = values.size(0)
    width = hl.specialize(values.size(1))
    for tile_program, features in hl.tile([programs, width], block_size=[1, FULL]):
        program = tile_program.begin
        all_sums = hl.zeros([ROWS, features], dtype=torch.float32)
        all_products = hl.zeros([ROWS, features], dtype=torch.float32)
        if weight is not None:
            gain = weight[features].to(torch.float32)
        for turn in hl.grid(TURNS):
            row = (program * TURNS + turn) * ROWS + hl.arange(ROWS)
            begin, length, is_row = span(offsets, row, bits, total, NARROW)
            kept = torch.where(is_row, length, 0)
            count = torch.where(kept > 0, kept * width, 1).to(torch.float32)
            centre = hl.load(mean, [row], extra_mask=is_row)
            scale = hl.load(rstd, [row], extra_mask=is_row)
            place = hl.arange(BLOCK)[None, :]
            longest = length.amax()
            if longest <= BLOCK:
                inside = (place < kept[:, None])[:, :, None]
                index = begin[:, None] + place
                block = hl.load(grad, [index, features], extra_mask=inside).to(torch.float32)
                value = hl.load(values, [index, features], extra_mask=inside).to(torch.float32)
                apart = (value - centre[:, None, None]) * scale[:, None, None]
                sums = block.sum(1)
                products = (block * apart).sum(1)
                if bias_sums is not None:
                    all_sums = all_sums + sums
                if weight_sums is not None:
                    all_products = all_products + products
                if weight is not None:
                    sums = sums * gain[None, :]
                    products = products * gain[None, :]
                    block = block * gain[None, None, :]
                level = sums.sum(1) / count
                slope = products.sum(1) / count
                moved = block - level[:, None, None] - apart * slope[:, None, None]
                moved = torch.where(inside, moved * scale[:, None, None], 0.0)
                within = (place < length[:, None])[:, :, None]
                hl.store(change, [index, features], moved.to(change.dtype), extra_mask=within)
            else:
                part_sums = hl.zeros([ROWS, features], dtype=torch.float32)
                part_products = hl.zeros([ROWS, features], dtype=torch.float32)
                for i in hl.grid((kept.amax() + BLOCK - 1) // BLOCK):
                    at = i * BLOCK + place
                    counted = (at < kept[:, None])[:, :, None]
                    index_read = begin[:, None] + at
                    part = hl.load(grad, [index_read, features], extra_mask=counted)
                    seen = hl.load(values, [index_read, features], extra_mask=counted)
                    gradient = part.to(torch.float32)
                    part_sums = part_sums + gradient.sum(1)
                    away = seen.to(torch.float32) - centre[:, None, None]
                    part_products = part_products + (gradient * away).sum(1)
                part_products = part_products * scale[:, None]
                if bias_sums is not None:
                    all_sums = all_sums + part_sums
                if weight_sums is not None:
                    all_products = all_products + part_products
                if weight is not None:
                    part_sums = part_sums * gain[None, :]
                    part_products = part_products * gain[None, :]
                height = part_sums.sum(1) / count
                tilt = part_products.sum(1) / count * scale
                for j in hl.grid((longest + BLOCK - 1) // BLOCK):
                    at_out = j * BLOCK + place
                    chosen = (at_out < kept[:, None])[:, :, None]
                    index_write = begin[:, None] + at_out
                    again = hl.load(grad, [index_write, features], extra_mask=chosen)
                    given = hl.load(values, [index_write, features], extra_mask=chosen)
                    back = again.to(torch.float32)
                    if weight is not None:
                        back = back * gain[None, None, :]
                    distance = given.to(torch.float32) - centre[:, None, None]
                    back = back - height[:, None, None] - distance * tilt[:, None, None]
                    back = torch.where(chosen, back * scale[:, None, None], 0.0)
                    reached = (at_out < length[:, None])[:, :, None]
                    hl.store(
                        change, [index_write, features], back.to(change.dtype), extra_mask=reached
                    )
        if bias_sums is not None:
            bias_sums[program, features] = all_sums.sum(0)
        if weight_sums is not None:
            weight_sums[program, features] = all_products.sum(0)
