"""Kernels of sum and mean: rows to one value each, and back.

`row`: a program owns one row and a tile of features, sums by block position and adds those up at
the end, so that nothing crosses threads inside the loop and only the last block has a mask; what it
reads is the first to leave the caches, which keep what others have written. `rows`: a program owns
a tile of short rows (`hl.jagged_tile`). `split`: few long rows are cut in pieces, of which another
launch adds up the sums.
"""

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels._device import DROP, narrow, number, summand, whole_blocks
from jagged.kernels._elements import (
    bisection,
    bit_length,
    descent,
    levels_of,
    merged,
    row_within,
)
from jagged.tuning.configs import ConfigTable
from jagged.tuning.launch import launchable
from jagged.tuning.space import Space, powers, up_to_width

# Block sizes: features; rows, features, elements.
FORWARD = ConfigTable(
    __file__,
    "reduce_rows",
    [
        Space(
            "row",
            [up_to_width(32, 128)],
            warps=(1, 2, 4, 8),
            DEEP=(1, 2, 4, 8),
            BLOCK=powers(2, 64),
        ),
        Space("", [powers(1, 16), up_to_width(32, 128), (4, 8, 16)], warps=(1, 2, 4)),
    ],
)
# Block sizes: elements, features.
BACKWARD = ConfigTable(
    __file__,
    "_spread_rows",
    [Space(blocks=[powers(8, 256), up_to_width(16, 128)], warps=(1, 2, 4, 8))],
)
SPLIT_LENGTH = 2048  # elements of a piece at least
SPLIT_PROGRAMS = 1024  # pieces of all rows at most, about eight for each multiprocessor


def reduce_rows(values: Tensor, offsets: Tensor, table: ConfigTable, mean: bool) -> Tensor:
    """Sum or mean of each row of `values` [T, ...]: [B, ...]."""
    rows = offsets.shape[0] - 1
    shape = (rows, *values.shape[1:])
    if values.numel() == 0:
        return values.new_zeros(shape)
    out = values.new_empty(shape)
    if rows == 0:
        return out
    matrix, target = merged(values, 1), merged(out, 1)
    total, width = matrix.shape
    config = table.pick(values, width, rows)
    exact = values.element_size() == 4
    if config.form != "row":
        _reduce_rows(config, matrix, offsets, target, mean, exact)
        return out
    pieces = min(total // rows // SPLIT_LENGTH, SPLIT_PROGRAMS // rows)
    if pieces > 1:
        dtype = torch.float64 if exact else torch.float32
        partial = torch.empty((rows, pieces, width), dtype=dtype, device=values.device)
        _reduce_pieces(config, matrix, offsets, partial, mean, exact, *config.constants.values())
        target.copy_(partial.sum(1))
    else:
        small = narrow(matrix)
        _reduce_row(config, matrix, offsets, target, mean, small, exact, *config.constants.values())
    return out


def spread_rows(
    grad: Tensor, offsets: Tensor, total: int, table: ConfigTable, mean: bool
) -> Tensor:
    """`grad` [B, ...], divided by the row's length for the mean, at each element: [total, ...]."""
    rows = grad.shape[0]
    out = grad.new_empty((total, *grad.shape[1:]))
    if out.numel() == 0:
        return out
    if rows == 0:
        return out.zero_()
    matrix, target = merged(grad, 1), merged(out, 1)
    config = table.pick(target, target.shape[1], rows)
    _spread_rows(config, matrix, offsets, target, mean, levels_of(rows))
    return out


@launchable()
def _reduce_row(
    values: Tensor,
    offsets: Tensor,
    out: Tensor,
    MEAN: hl.constexpr,
    NARROW: hl.constexpr,
    EXACT: hl.constexpr,
    DEEP: hl.constexpr,
    BLOCK: hl.constexpr,
) -> None:
    """values [T, D], offsets [B + 1], out [B, D]; a trip takes DEEP x BLOCK elements."""
    rows = offsets.size(0) - 1
    width = hl.specialize(values.size(1))
    step = DEEP * BLOCK
    for tile_row, features in hl.tile([rows, width], block_size=[1, None]):
        begin = number(offsets[tile_row.begin], NARROW)
        length = number(offsets[tile_row.begin + 1], NARROW) - begin
        whole = whole_blocks(length, step)
        place = hl.arange(BLOCK)[:, None] + hl.arange(DEEP)[None, :] * BLOCK
        last = whole * step + place
        inside = (last < length)[:, :, None]
        ending = hl.load(values, [begin + last, features], extra_mask=inside)
        sums = summand(ending, EXACT).sum(1)
        for i in hl.grid(whole):
            index = begin + i * step + place
            block = hl.load(values, [index, features], eviction_policy=DROP)
            sums = sums + summand(block, EXACT).sum(1)
        result = sums.sum(0)
        if MEAN:
            result = result / summand(torch.where(length > 0, length, 1), EXACT)
        out[tile_row.begin, features] = result.to(out.dtype)


@launchable()
def _reduce_rows(
    values: Tensor, offsets: Tensor, out: Tensor, MEAN: hl.constexpr, EXACT: hl.constexpr
) -> None:
    """values [T, D], offsets [B + 1], out [B, D]."""
    rows = offsets.size(0) - 1
    width = hl.specialize(values.size(1))
    for tile_row, features in hl.tile([rows, width]):
        begin = offsets[tile_row]
        length = offsets[tile_row.index + 1] - begin
        sums = summand(hl.zeros([tile_row, features], dtype=torch.float32), EXACT)
        for tile in hl.jagged_tile(length):
            block = values[begin[:, None] + tile.index[None, :], features]
            sums = sums + summand(block, EXACT).sum(1)
        if MEAN:
            sums = sums / summand(torch.where(length > 0, length, 1), EXACT)[:, None]
        out[tile_row, features] = sums.to(out.dtype)


@launchable(dynamic={"partial": (0, 1)})
def _reduce_pieces(
    values: Tensor,
    offsets: Tensor,
    partial: Tensor,
    MEAN: hl.constexpr,
    EXACT: hl.constexpr,
    DEEP: hl.constexpr,
    BLOCK: hl.constexpr,
) -> None:
    """values [T, D], offsets [B + 1], partial [B, pieces, D]: each row in equal pieces."""
    step = DEEP * BLOCK
    rows = offsets.size(0) - 1
    pieces = partial.size(1)
    width = hl.specialize(values.size(1))
    for tile_row, piece, features in hl.tile([rows, pieces, width], block_size=[1, 1, None]):
        start = offsets[tile_row.begin]
        all_length = offsets[tile_row.begin + 1] - start
        share = (all_length + pieces - 1) // pieces
        skipped = share * piece.begin
        left = all_length - skipped
        length = torch.where(left < share, left, share)
        begin = start + skipped
        whole = whole_blocks(length, step)
        place = hl.arange(BLOCK)[:, None] + hl.arange(DEEP)[None, :] * BLOCK
        last = whole * step + place
        inside = (last < length)[:, :, None]
        ending = hl.load(values, [begin + last, features], extra_mask=inside)
        sums = summand(ending, EXACT).sum(1)
        for i in hl.grid(whole):
            block = values[begin + i * step + place, features]
            sums = sums + summand(block, EXACT).sum(1)
        result = sums.sum(0)
        if MEAN:
            result = result / summand(torch.where(all_length > 0, all_length, 1), EXACT)
        partial[tile_row.begin, piece.begin, features] = result


@launchable()
def _spread_rows(
    grad: Tensor, offsets: Tensor, out: Tensor, MEAN: hl.constexpr, levels: int
) -> None:
    """grad [B, D], offsets [B + 1], out [T, D].

    A program owns a block of elements and looks for their rows, see `_elements`, so the work is
    even whatever the lengths, and the capacity tail is one more row, of zeros.
    """
    rows = offsets.size(0) - 1
    width = hl.specialize(grad.size(1))
    for elements, features in hl.tile([out.size(0), width]):
        low = hl.zeros([], dtype=torch.int64)
        reach = low + rows + 1
        for _level in hl.grid(levels):
            low, reach = descent(offsets, rows, elements.begin, low, reach)
        high = row_within(offsets, rows, elements.end - 1, low)
        row = elements.index * 0 + low
        bound = elements.index * 0 + high
        for _halving in hl.grid(bit_length(high - low)):
            row, bound = bisection(offsets, elements.index, row, bound)
        inside = row < rows
        block = hl.load(grad, [row, features], extra_mask=inside[:, None])
        if MEAN:
            start = hl.load(offsets, [row], extra_mask=inside)
            end = hl.load(offsets, [row + 1], extra_mask=inside)
            length = torch.where(inside, end - start, 1).to(torch.float32)
            out[elements, features] = (block.to(torch.float32) / length[:, None]).to(out.dtype)
        else:
            out[elements, features] = block
