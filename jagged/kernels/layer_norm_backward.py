"""Gradient kernels of `layer_norm`.

With `grad` g, normed values y = (x - mean) * rstd and weight w, for each row of n elements:

    change = rstd * (g * w - sum(g * w) / (n * D) - y * sum(g * w * y) / (n * D))

The sums over a row of g and of g * y, kept by feature, give both: multiplied by w and added up they
are the row's sums, and added up over all rows they are the gradients of bias and weight. Each
program writes its own, [programs, D] in float32, and another launch adds them: deterministic.
"""

# Helion resolves `is not None` when it generates code, so what one such branch sets, others use.
# pyright: reportPossiblyUnboundVariable=false

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels._device import span, whole_blocks
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
    """grad, values, change [T, D], offsets [B + 1], mean, rstd [B], weight [D], sums [P, D]."""
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
            whole = whole_blocks(kept, step)
            place = hl.arange(BLOCK)[:, None] + hl.arange(DEEP)[None, :] * BLOCK
            last = whole * step + place
            inside = (last < kept)[:, :, None]
            centre = hl.load(mean, [row], extra_mask=is_row)
            scale = hl.load(rstd, [row], extra_mask=is_row)
            end_grad = hl.load(grad, [begin + last, features], extra_mask=inside)
            end_values = hl.load(values, [begin + last, features], extra_mask=inside)
            ending = end_grad.to(torch.float32)
            end_apart = torch.where(inside, end_values.to(torch.float32) - centre, 0.0)
            sums = ending.sum(1)
            products = (ending * end_apart).sum(1)
            for i in hl.grid(whole):
                index = begin + i * step + place
                block = grad[index, features].to(torch.float32)
                apart = values[index, features].to(torch.float32) - centre
                sums = sums + block.sum(1)
                products = products + (block * apart).sum(1)
            by_feature = sums.sum(0)
            along = products.sum(0) * scale
            if bias_sums is not None:
                all_sums = all_sums + by_feature
            if weight_sums is not None:
                all_products = all_products + along
            if weight is not None:
                by_feature = by_feature * gain
                along = along * gain
            count = torch.where(kept > 0, kept * width, 1).to(torch.float32)
            level = by_feature.sum(0) / count * scale
            slope = along.sum(0) / count * scale * scale
            for j in hl.grid(whole):
                index_out = begin + (whole - 1 - j) * step + place
                again = hl.load(grad, [index_out, features], eviction_policy="evict_first")
                moved = again.to(torch.float32) * scale
                if weight is not None:
                    moved = moved * gain[None, None, :]
                value = hl.load(values, [index_out, features], eviction_policy="evict_first")
                moved = moved - level - (value.to(torch.float32) - centre) * slope
                change[index_out, features] = moved.to(change.dtype)
            ending = ending * scale
            if weight is not None:
                ending = ending * gain[None, None, :]
            within = (last < length)[:, :, None]
            written = torch.where(inside, ending - level - end_apart * slope, 0.0)
            hl.store(change, [begin + last, features], written.to(change.dtype), extra_mask=within)
            for cut in hl.tile(begin + (whole + 1) * step, begin + length):
                change[cut, features] = 0.0
        if bias_sums is not None:
            bias_sums[program, features] = all_sums
        if weight_sums is not None:
            weight_sums[program, features] = all_products


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
