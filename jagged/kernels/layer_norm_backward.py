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
    parts: int,
    FULL: hl.constexpr,
    BLOCK: hl.constexpr,
) -> None:
    """grad, values, change [T, D], offsets [B + 1], mean, rstd [B], weight [D], sums [P, D]."""
    rows = offsets.size(0) - 1
    total = values.size(0)
    width = hl.specialize(values.size(1))
    for tile_row, features in hl.tile([rows + parts, width], block_size=[1, FULL]):
        row = tile_row.begin
        begin, length, is_row = span(offsets, row, parts, total)
        kept = torch.where(is_row, length, 0)
        whole = whole_blocks(kept, BLOCK)
        last = whole * BLOCK + hl.arange(BLOCK)
        inside = (last < kept)[:, None]
        centre = hl.load(mean, [row], extra_mask=is_row)
        scale = hl.load(rstd, [row], extra_mask=is_row)
        end_grad = hl.load(grad, [begin + last, features], extra_mask=inside).to(torch.float32)
        end_values = hl.load(values, [begin + last, features], extra_mask=inside)
        end_apart = torch.where(inside, end_values.to(torch.float32) - centre, 0.0)
        sums = end_grad
        products = end_grad * end_apart
        for i in hl.grid(whole):
            index = begin + i * BLOCK + hl.arange(BLOCK)
            block = grad[index, features].to(torch.float32)
            sums = sums + block
            products = products + block * (values[index, features].to(torch.float32) - centre)
        by_feature = sums.sum(0)
        along = products.sum(0) * scale
        if bias_sums is not None:
            bias_sums[row, features] = by_feature
        if weight_sums is not None:
            weight_sums[row, features] = along
        if weight is not None:
            gain = weight[features].to(torch.float32)
            by_feature = by_feature * gain
            along = along * gain
        count = torch.where(kept > 0, kept * width, 1).to(torch.float32)
        level = by_feature.sum(0) / count * scale
        slope = along.sum(0) / count * scale * scale
        for j in hl.grid(whole):
            index_out = begin + j * BLOCK + hl.arange(BLOCK)
            again = grad[index_out, features].to(torch.float32) * scale
            if weight is not None:
                again = again * gain[None, :]
            apart = values[index_out, features].to(torch.float32) - centre
            change[index_out, features] = (again - level - apart * slope).to(change.dtype)
        ending = end_grad * scale
        if weight is not None:
            ending = ending * gain[None, :]
        within = (last < length)[:, None]
        written = torch.where(inside, ending - level - end_apart * slope, 0.0).to(change.dtype)
        hl.store(change, [begin + last, features], written, extra_mask=within)
        for cut in hl.tile(begin + (whole + 1) * BLOCK, begin + length):
            change[cut, features] = 0.0


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
    parts: int,
    FULL: hl.constexpr,
    BLOCK: hl.constexpr,
    ROWS: hl.constexpr,
) -> None:
    """As `norm_row_backward`, for ROWS rows a program; BLOCK elements a row are read once."""
    rows = offsets.size(0) - 1
    total = values.size(0)
    width = hl.specialize(values.size(1))
    for tile_row, features in hl.tile([rows + parts, width], block_size=[ROWS, FULL]):
        begin, length, is_row = span(offsets, tile_row.index, parts, total)
        kept = torch.where(is_row, length, 0)
        count = torch.where(kept > 0, kept * width, 1).to(torch.float32)
        centre = hl.load(mean, [tile_row.index], extra_mask=is_row)
        scale = hl.load(rstd, [tile_row.index], extra_mask=is_row)
        if weight is not None:
            gain = weight[features].to(torch.float32)
        if length.amax() <= BLOCK:
            place = hl.arange(BLOCK)
            inside = (place[None, :] < kept[:, None])[:, :, None]
            index = begin[:, None] + place[None, :]
            block = hl.load(grad, [index, features], extra_mask=inside).to(torch.float32)
            apart = hl.load(values, [index, features], extra_mask=inside).to(torch.float32)
            apart = torch.where(inside, (apart - centre[:, None, None]) * scale[:, None, None], 0.0)
            sums = block.sum(1)
            products = (block * apart).sum(1)
            if bias_sums is not None:
                bias_sums[tile_row.id, features] = sums.sum(0)
            if weight_sums is not None:
                weight_sums[tile_row.id, features] = products.sum(0)
            if weight is not None:
                sums = sums * gain[None, :]
                products = products * gain[None, :]
                block = block * gain[None, None, :]
            level = sums.sum(1) / count
            slope = products.sum(1) / count
            moved = block - level[:, None, None] - apart * slope[:, None, None]
            moved = torch.where(inside, moved * scale[:, None, None], 0.0).to(change.dtype)
            within = (place[None, :] < length[:, None])[:, :, None]
            hl.store(change, [index, features], moved, extra_mask=within)
        else:
            all_sums = hl.zeros([tile_row, features], dtype=torch.float32)
            all_products = hl.zeros([tile_row, features], dtype=torch.float32)
            for read in hl.jagged_tile(kept):
                index_read = begin[:, None] + read.index[None, :]
                part = grad[index_read, features].to(torch.float32)
                normed = values[index_read, features].to(torch.float32) - centre[:, None, None]
                all_sums = all_sums + part.sum(1)
                all_products = all_products + (part * normed).sum(1)
            all_products = all_products * scale[:, None]
            if bias_sums is not None:
                bias_sums[tile_row.id, features] = all_sums.sum(0)
            if weight_sums is not None:
                weight_sums[tile_row.id, features] = all_products.sum(0)
            if weight is not None:
                all_sums = all_sums * gain[None, :]
                all_products = all_products * gain[None, :]
            height = all_sums.sum(1) / count
            tilt = all_products.sum(1) / count * scale
            for write in hl.jagged_tile(length):
                index_write = begin[:, None] + write.index[None, :]
                again = grad[index_write, features].to(torch.float32)
                if weight is not None:
                    again = again * gain[None, None, :]
                away = values[index_write, features].to(torch.float32) - centre[:, None, None]
                again = again - height[:, None, None] - away * tilt[:, None, None]
                again = torch.where(is_row[:, None, None], again * scale[:, None, None], 0.0)
                change[index_write, features] = again.to(change.dtype)
