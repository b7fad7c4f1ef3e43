"""One dense row [B, ...] added to every element of its row.

Symbols: B rows, T elements (capacity included), F features.
"""

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels import sum as row_sum
from jagged.kernels._copies import ELEMENTS, SPACE, filled_only
from jagged.kernels._device import narrow, span, summand, tail_bits, whole_blocks
from jagged.kernels._elements import (
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

__all__ = ["ELEMENTS", "FORWARD", "SUM", "backward", "forward"]

# Block sizes: elements, features.
FORWARD = ConfigTable(__file__, "_add_row", SPACE)
SUM = row_sum.FORWARD


def forward(values: Tensor, offsets: Tensor, dense: Tensor) -> Tensor:
    out = empty_like(values)
    if out.numel() == 0:
        return out
    rows = dense.shape[0]
    if rows == 0:
        return out.zero_()
    target = merged(out, 1)
    config = FORWARD.pick(target, target.shape[1], rows)
    _add_row(config, merged(values, 1), offsets, merged(dense, 1), target, levels_of(rows))
    return out


def backward(
    grad: Tensor, offsets: Tensor, need_values: bool, need_dense: bool
) -> tuple[Tensor, Tensor]:
    rows = offsets.shape[0] - 1
    if need_values and need_dense and grad.numel() > 0 and rows > 0:
        matrix = merged(grad, 1)
        total, width = matrix.shape
        config = SUM.pick(grad, width, rows)
        # Few long rows are summed in pieces, short ones several a program: `_rows` does both.
        if config.form == "row" and total // rows < row_sum.SPLIT_LENGTH:
            filled = empty_like(grad)
            sums = grad.new_empty((rows, *grad.shape[1:]))
            target, bits = merged(filled, 1), tail_bits(total)
            _both_gradients(
                config, matrix, offsets, target, merged(sums, 1), 1 << bits, bits,
                narrow(matrix, target), grad.element_size() == 4, *config.constants.values(),
            )  # fmt: skip
            return filled, sums
    return (
        filled_only(grad, offsets) if need_values else grad.new_empty(0),
        row_sum.forward(grad, offsets) if need_dense else grad.new_empty(0),
    )


@launchable()
def _add_row(values: Tensor, offsets: Tensor, dense: Tensor, out: Tensor, levels: int) -> None:
    """values, out [T, F], dense [B, F]. A program owns a block of elements and of features."""
    rows = offsets.size(0) - 1
    total = out.size(0)
    width = hl.specialize(out.size(1))
    for elements, features in hl.tile([total, width]):
        low = hl.zeros([], dtype=torch.int64)
        reach = low + rows + 1
        for _level in hl.grid(levels):
            low, reach = descent(offsets, rows, elements.begin, low, reach)
        high = row_within(offsets, rows, elements.end - 1, low)
        row = elements.index * 0 + low
        bound = elements.index * 0 + high
        for _halving in hl.grid(bit_length(high - low)):
            row, bound = bisection(offsets, elements.index, row, bound)
        filled = (row < rows)[:, None]
        added = hl.load(dense, [row[:, None], features.index[None, :]], extra_mask=filled)
        element = hl.load(values, [elements, features], extra_mask=filled)
        out[elements, features] = (element.to(torch.float32) + added.to(torch.float32)).to(
            out.dtype
        )


@launchable()
def _both_gradients(
    grad: Tensor,
    offsets: Tensor,
    filled: Tensor,
    sums: Tensor,
    parts: int,
    bits: int,
    NARROW: hl.constexpr,
    EXACT: hl.constexpr,
    DEEP: hl.constexpr,
    BLOCK: hl.constexpr,
) -> None:
    """grad, filled [T, F], sums [B, F]: the gradient with 0 in the capacity tail, and its sums.

    A program owns a row, or a part of the tail, and a block of features; it reads them once.
    """
    total = grad.size(0)
    width = hl.specialize(grad.size(1))
    rows = offsets.size(0) - 1
    step = DEEP * BLOCK
    for tile_row, features in hl.tile([rows + parts, width], block_size=[1, None]):
        begin, length, is_row = span(offsets, tile_row.begin, bits, total, NARROW)
        kept = torch.where(is_row, length, 0)
        whole = whole_blocks(kept, step)
        place = hl.arange(BLOCK)[:, None] + hl.arange(DEEP)[None, :] * BLOCK
        last = whole * step + place
        inside = (last < kept)[:, :, None]
        ending = hl.load(grad, [begin + last, features], extra_mask=inside)
        added = summand(ending, EXACT).sum(1)
        for i in hl.grid(whole):
            index = begin + i * step + place
            block = grad[index, features]
            filled[index, features] = block
            added = added + summand(block, EXACT).sum(1)
        within = (last < length)[:, :, None]
        hl.store(filled, [begin + last, features], ending, extra_mask=within)
        if tile_row.begin < rows:
            sums[tile_row.begin, features] = added.sum(0).to(sums.dtype)
        for cut in hl.tile(begin + (whole + 1) * step, begin + length, block_size=32):
            filled[cut, features] = 0.0
