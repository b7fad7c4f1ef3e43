"""Copies between the jagged and the padded layout: the kernels of to_padded, from_padded and of the
gradients that are such copies.

They move bits, so they serve every dtype by its size. Symbols: B rows, T elements (capacity
included), N cells a row, F features.
"""

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels._elements import (
    as_bits,
    bisection,
    bit_length,
    descent,
    empty_like,
    levels_of,
    merged,
    row_within,
)
from jagged.tuning.configs import ConfigTable
from jagged.tuning.launch import launchable
from jagged.tuning.space import Space, powers, up_to_width

# Block sizes: elements or cells, features.
SPACE = [Space(blocks=[powers(8, 1024), up_to_width(16, 128)], warps=(1, 2, 4, 8))]
ELEMENTS = ConfigTable(__file__, "_to_elements", SPACE)
CELLS = ConfigTable(__file__, "_to_cells", SPACE)


def to_elements(dense: Tensor, offsets: Tensor, total: int) -> Tensor:
    """[total, ...] from `dense` [B, N, ...]: 0 at or past N and in the capacity tail."""
    out = dense.new_empty((total, *dense.shape[2:]))
    if out.numel() == 0:
        return out
    if dense.numel() == 0:
        return out.zero_()
    source, target = merged(as_bits(dense), 2), merged(as_bits(out), 1)
    rows = dense.shape[0]
    config = ELEMENTS.pick(target, target.shape[1], rows)
    _to_elements(config, source, offsets, target, levels_of(rows))
    return out


def to_cells(values: Tensor, offsets: Tensor, length: int, padding: int = 0) -> Tensor:
    """[B, length, ...] from `values` [T, ...]; cells without an element hold the bits `padding`."""
    rows = offsets.shape[0] - 1
    out = values.new_empty((rows, length, *values.shape[1:]))
    if out.numel() == 0:
        return out
    if values.shape[0] == 0:
        as_bits(out).fill_(padding)
        return out
    source, target = merged(as_bits(values), 1), as_bits(out).view(rows * length, -1)
    config = CELLS.pick(source, source.shape[1], rows)
    _to_cells(config, source, offsets, target, length, padding)
    return out


def filled_only(values: Tensor, offsets: Tensor) -> Tensor:
    """A copy of `values` [T, ...] with 0 in the capacity tail."""
    out = empty_like(values)
    if out.numel() == 0:
        return out
    rows = offsets.shape[0] - 1
    source, target = merged(as_bits(values), 1), merged(as_bits(out), 1)
    _filled_only(ELEMENTS.pick(target, target.shape[1], rows), source, offsets, target)
    return out


def to_elements_and_cells(values: Tensor, offsets: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """`filled_only(values)` and `to_cells(values)`, which read `values` once."""
    rows = offsets.shape[0] - 1
    filled = empty_like(values)
    padded = values.new_empty((rows, length, *values.shape[1:]))
    if filled.numel() == 0:
        return filled, padded.zero_()
    if padded.numel() == 0:
        return filled_only(values, offsets), padded
    source, target = merged(as_bits(values), 1), merged(as_bits(filled), 1)
    cells = merged(as_bits(padded), 2)
    config = ELEMENTS.pick(target, target.shape[1], rows)
    _to_elements_and_cells(config, source, offsets, target, cells, levels_of(rows))
    cells = cells.view(rows * length, -1)
    _clear_padding(CELLS.pick(source, source.shape[1], rows), offsets, cells, length)
    return filled, padded


@launchable(dynamic={"dense": (0, 1)})
def _to_elements(dense: Tensor, offsets: Tensor, out: Tensor, levels: int) -> None:
    """dense [B, N, F] -> out [T, F]. A program owns a block of elements and of features."""
    rows = offsets.size(0) - 1
    length = dense.size(1)
    total = out.size(0)
    width = hl.specialize(out.size(1))
    for elements, features in hl.tile([total, width]):
        low = hl.zeros([], dtype=torch.int64)
        span = low + rows + 1
        for _level in hl.grid(levels):
            low, span = descent(offsets, rows, elements.begin, low, span)
        high = row_within(offsets, rows, elements.end - 1, low)
        row = elements.index * 0 + low
        bound = elements.index * 0 + high
        for _halving in hl.grid(bit_length(high - low)):
            row, bound = bisection(offsets, elements.index, row, bound)
        position = elements.index - hl.load(offsets, [row])
        kept = (row < rows) & (position < length)
        out[elements, features] = hl.load(
            dense,
            [row[:, None], position[:, None], features.index[None, :]],
            extra_mask=kept[:, None],
        )


@launchable()
def _to_cells(values: Tensor, offsets: Tensor, out: Tensor, length: int, padding: int) -> None:
    """values [T, F] -> out [B * N, F]. A program owns a block of cells and of features."""
    total = out.size(0)
    width = hl.specialize(out.size(1))
    for cells, features in hl.tile([total, width]):
        row = cells.index // length
        position = cells.index - row * length
        start = hl.load(offsets, [row])
        kept = position < hl.load(offsets, [row + 1]) - start
        copied = hl.load(
            values,
            [(start + position)[:, None], features.index[None, :]],
            extra_mask=kept[:, None],
        )
        out[cells, features] = torch.where(kept[:, None], copied, padding)


@launchable()
def _filled_only(values: Tensor, offsets: Tensor, out: Tensor) -> None:
    """values [T, F] -> out [T, F]. A program owns a block of elements and of features."""
    rows = offsets.size(0) - 1
    total = out.size(0)
    width = hl.specialize(out.size(1))
    for elements, features in hl.tile([total, width]):
        kept = elements.index < offsets[rows]
        out[elements, features] = hl.load(values, [elements, features], extra_mask=kept[:, None])


@launchable(dynamic={"cells": (0, 1)})
def _to_elements_and_cells(
    values: Tensor, offsets: Tensor, out: Tensor, cells: Tensor, levels: int
) -> None:
    """values [T, F] -> out [T, F] and, where there is an element, cells [B, N, F]."""
    rows = offsets.size(0) - 1
    length = cells.size(1)
    total = out.size(0)
    width = hl.specialize(out.size(1))
    for elements, features in hl.tile([total, width]):
        low = hl.zeros([], dtype=torch.int64)
        span = low + rows + 1
        for _level in hl.grid(levels):
            low, span = descent(offsets, rows, elements.begin, low, span)
        high = row_within(offsets, rows, elements.end - 1, low)
        row = elements.index * 0 + low
        bound = elements.index * 0 + high
        for _halving in hl.grid(bit_length(high - low)):
            row, bound = bisection(offsets, elements.index, row, bound)
        position = elements.index - hl.load(offsets, [row])
        filled = row < rows
        copied = hl.load(values, [elements, features], extra_mask=filled[:, None])
        out[elements, features] = copied
        hl.store(
            cells,
            [row[:, None], position[:, None], features.index[None, :]],
            copied,
            extra_mask=(filled & (position < length))[:, None],
        )


@launchable()
def _clear_padding(offsets: Tensor, out: Tensor, length: int) -> None:
    """0 in the cells of out [B * N, F] that have no element, nothing elsewhere."""
    total = out.size(0)
    width = hl.specialize(out.size(1))
    for cells, features in hl.tile([total, width]):
        row = cells.index // length
        position = cells.index - row * length
        padding = position >= hl.load(offsets, [row + 1]) - hl.load(offsets, [row])
        zero = hl.zeros([cells, features], dtype=out.dtype)
        hl.store(out, [cells, features], zero, extra_mask=padding[:, None])
