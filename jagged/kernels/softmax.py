"""Softmax along each row, per feature: one online pass for maximum and sum, one to write.

Two forms. `row`: a program owns one row and a tile of features; only the last block of a row has a
mask, is read first and stays in registers, so a row of one block is read once. `rows`: a program
owns a tile of short rows; rows that all fit `ONCE` elements are read once, else `hl.jagged_tile`
loops twice. What costs is instructions, not bytes: see `_device.exp`.
"""

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels import softmax_configs
from jagged.kernels._device import exp, span, tail_parts, whole_blocks
from jagged.kernels._elements import merged
from jagged.tuning.configs import ConfigTable
from jagged.tuning.launch import launchable

FORWARD = ConfigTable(softmax_configs.FORWARD)
BACKWARD = ConfigTable(softmax_configs.BACKWARD)
NO_LIMIT = 2**31 - 1


def forward(values: Tensor, offsets: Tensor, max_length: int | None) -> Tensor:
    rows = offsets.shape[0] - 1
    out = torch.empty(values.shape, dtype=values.dtype, device=values.device)
    if out.numel() == 0:
        return out
    matrix, target = merged(values, 1), merged(out, 1)
    config = FORWARD.pick(values, matrix.shape[1], rows)
    kernel = _softmax_row if config.form == "row" else _softmax_rows
    limit = NO_LIMIT if max_length is None else max_length
    parts = tail_parts(matrix.shape[0])
    kernel(config, matrix, offsets, target, limit, parts, config.constants["BLOCK"])
    return out


def backward(grad: Tensor, out: Tensor, offsets: Tensor, max_length: int | None) -> Tensor:
    rows = offsets.shape[0] - 1
    change = torch.empty(grad.shape, dtype=grad.dtype, device=grad.device)
    if change.numel() == 0:
        return change
    matrix, target = merged(grad, 1), merged(change, 1)
    config = BACKWARD.pick(grad, matrix.shape[1], rows)
    kernel = _softmax_row_backward if config.form == "row" else _softmax_rows_backward
    limit = NO_LIMIT if max_length is None else max_length
    args = matrix, merged(out, 1), offsets, target, limit, tail_parts(matrix.shape[0])
    kernel(config, *args, config.constants["BLOCK"])
    return change


@launchable()
def _softmax_row(
    values: Tensor, offsets: Tensor, out: Tensor, limit: int, parts: int, BLOCK: hl.constexpr
) -> None:
    """values, out [T, D], offsets [B + 1]; elements of a row at or past `limit` get 0."""
    rows = offsets.size(0) - 1
    total = values.size(0)
    width = hl.specialize(values.size(1))
    for tile_row, features in hl.tile([rows + parts, width], block_size=[1, None]):
        begin, length, is_row = span(offsets, tile_row.begin, parts, total)
        kept = torch.where(is_row, torch.where(length < limit, length, limit), 0)
        whole = whole_blocks(kept, BLOCK)
        last = whole * BLOCK + hl.arange(BLOCK)
        inside = (last < kept)[:, None]
        ending = hl.load(values, [begin + last, features], extra_mask=inside).to(torch.float32)
        ending = torch.where(inside, ending, float("-inf"))
        # The lowest finite number, so that a block of -inf leaves weights of 0 and not NaN.
        lowest = hl.full([features], -3.4028234663852886e38, dtype=torch.float32)
        top = torch.maximum(ending.amax(0), lowest)
        mass = exp(ending - top[None, :])
        for i in hl.grid(whole):
            index = begin + i * BLOCK + hl.arange(BLOCK)
            block = values[index, features].to(torch.float32)
            higher = torch.maximum(top, block.amax(0))
            mass = mass * exp(top - higher)[None, :] + exp(block - higher[None, :])
            top = higher
        inverse = 1.0 / mass.sum(0)
        for j in hl.grid(whole):
            index_out = begin + j * BLOCK + hl.arange(BLOCK)
            again = values[index_out, features].to(torch.float32)
            out[index_out, features] = (exp(again - top[None, :]) * inverse[None, :]).to(out.dtype)
        weight = torch.where(inside, exp(ending - top[None, :]) * inverse[None, :], 0.0)
        within = (last < length)[:, None]
        hl.store(out, [begin + last, features], weight.to(out.dtype), extra_mask=within)
        for cut in hl.tile(begin + (whole + 1) * BLOCK, begin + length):
            out[cut, features] = 0.0


@launchable()
def _softmax_rows(
    values: Tensor, offsets: Tensor, out: Tensor, limit: int, parts: int, BLOCK: hl.constexpr
) -> None:
    """As `_softmax_row`, for a tile of rows; BLOCK elements a row are read once."""
    rows = offsets.size(0) - 1
    total = values.size(0)
    width = hl.specialize(values.size(1))
    for tile_row, features in hl.tile([rows + parts, width]):
        begin, length, is_row = span(offsets, tile_row.index, parts, total)
        kept = torch.where(is_row, torch.where(length < limit, length, limit), 0)
        lowest = hl.full([tile_row, features], -3.4028234663852886e38, dtype=torch.float32)
        if length.amax() <= BLOCK:
            place = hl.arange(BLOCK)
            inside = (place[None, :] < kept[:, None])[:, :, None]
            index = begin[:, None] + place[None, :]
            block = hl.load(values, [index, features], extra_mask=inside).to(torch.float32)
            block = torch.where(inside, block, float("-inf"))
            top = torch.maximum(block.amax(1), lowest)
            weight = exp(block - top[:, None, :])
            inverse = 1.0 / weight.sum(1)
            weight = torch.where(inside, weight * inverse[:, None, :], 0.0)
            within = (place[None, :] < length[:, None])[:, :, None]
            hl.store(out, [index, features], weight.to(out.dtype), extra_mask=within)
        else:
            high = lowest
            mass = hl.zeros([tile_row, features], dtype=torch.float32)
            for read in hl.jagged_tile(kept):
                index_read = begin[:, None] + read.index[None, :]
                part = values[index_read, features].to(torch.float32)
                higher = torch.maximum(high, part.amax(1))
                mass = mass * exp(high - higher) + exp(part - higher[:, None, :]).sum(1)
                high = higher
            share = 1.0 / mass
            for write in hl.jagged_tile(length):
                index_write = begin[:, None] + write.index[None, :]
                again = values[index_write, features].to(torch.float32)
                result = exp(again - high[:, None, :]) * share[:, None, :]
                counted = (write.index[None, :] < kept[:, None])[:, :, None]
                out[index_write, features] = torch.where(counted, result, 0.0).to(out.dtype)


@launchable()
def _softmax_row_backward(
    grad: Tensor,
    out: Tensor,
    offsets: Tensor,
    change: Tensor,
    limit: int,
    parts: int,
    BLOCK: hl.constexpr,
) -> None:
    """grad, out, change [T, D]: `change = (grad - sum(grad * out)) * out`, the sum over a row."""
    rows = offsets.size(0) - 1
    total = grad.size(0)
    width = hl.specialize(grad.size(1))
    for tile_row, features in hl.tile([rows + parts, width], block_size=[1, None]):
        begin, length, is_row = span(offsets, tile_row.begin, parts, total)
        kept = torch.where(is_row, torch.where(length < limit, length, limit), 0)
        whole = whole_blocks(kept, BLOCK)
        last = whole * BLOCK + hl.arange(BLOCK)
        inside = (last < kept)[:, None]
        end_grad = hl.load(grad, [begin + last, features], extra_mask=inside).to(torch.float32)
        end_out = hl.load(out, [begin + last, features], extra_mask=inside).to(torch.float32)
        products = end_grad * end_out
        for i in hl.grid(whole):
            index = begin + i * BLOCK + hl.arange(BLOCK)
            block = grad[index, features].to(torch.float32)
            products = products + block * out[index, features].to(torch.float32)
        inner = products.sum(0)
        for j in hl.grid(whole):
            index_out = begin + j * BLOCK + hl.arange(BLOCK)
            again = grad[index_out, features].to(torch.float32) - inner[None, :]
            weight = out[index_out, features].to(torch.float32)
            change[index_out, features] = (again * weight).to(change.dtype)
        ending = (end_grad - inner[None, :]) * end_out
        within = (last < length)[:, None]
        ending = torch.where(inside, ending, 0.0).to(change.dtype)
        hl.store(change, [begin + last, features], ending, extra_mask=within)
        for cut in hl.tile(begin + (whole + 1) * BLOCK, begin + length):
            change[cut, features] = 0.0


@launchable()
def _softmax_rows_backward(
    grad: Tensor,
    out: Tensor,
    offsets: Tensor,
    change: Tensor,
    limit: int,
    parts: int,
    BLOCK: hl.constexpr,
) -> None:
    """As `_softmax_row_backward`, for a tile of rows; BLOCK elements a row are read once."""
    rows = offsets.size(0) - 1
    total = grad.size(0)
    width = hl.specialize(grad.size(1))
    for tile_row, features in hl.tile([rows + parts, width]):
        begin, length, is_row = span(offsets, tile_row.index, parts, total)
        kept = torch.where(is_row, torch.where(length < limit, length, limit), 0)
        if length.amax() <= BLOCK:
            place = hl.arange(BLOCK)
            inside = (place[None, :] < kept[:, None])[:, :, None]
            index = begin[:, None] + place[None, :]
            block = hl.load(grad, [index, features], extra_mask=inside).to(torch.float32)
            weight = hl.load(out, [index, features], extra_mask=inside).to(torch.float32)
            inner = (block * weight).sum(1)
            result = torch.where(inside, (block - inner[:, None, :]) * weight, 0.0)
            within = (place[None, :] < length[:, None])[:, :, None]
            hl.store(change, [index, features], result.to(change.dtype), extra_mask=within)
        else:
            sums = hl.zeros([tile_row, features], dtype=torch.float32)
            for read in hl.jagged_tile(kept):
                index_read = begin[:, None] + read.index[None, :]
                part = grad[index_read, features].to(torch.float32)
                sums = sums + (part * out[index_read, features].to(torch.float32)).sum(1)
            for write in hl.jagged_tile(length):
                index_write = begin[:, None] + write.index[None, :]
                again = grad[index_write, features].to(torch.float32) - sums[:, None, :]
                moved = again * out[index_write, features].to(torch.float32)
                counted = (write.index[None, :] < kept[:, None])[:, :, None]
                change[index_write, features] = torch.where(counted, moved, 0.0).to(change.dtype)
