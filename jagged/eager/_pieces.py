"""Rows cut in pieces of one size, so that a product per row becomes one batched product.

Padding all rows to the longest one costs B * N_max, which one long row among many short ones
blows up. Pieces of the mean length cost at most twice the elements and twice the rows, whatever
the lengths are, and their number follows from T and B: the offsets are not read on the host.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from jagged.eager._rows import clear, elements, sum_rows

_SUMMED = 2**22  # numbers of which a copy in float64 is made at a time


class Pieces(NamedTuple):
    """P consecutive elements of one row each, the last ones of a row and unused pieces padded."""

    row: Tensor  # [pieces] int64: the row of a piece, B - 1 for an unused one
    source: Tensor  # [pieces, P] int64: the element in a slot, any where the slot is padding
    padding: Tensor  # [pieces, P] bool: slots that hold no element
    slot: Tensor  # [T] int64: where an element went, any for an element that went nowhere
    element_row: Tensor  # [T] int64: the row of an element, B for the tail
    outside: Tensor  # [T] bool: elements of no row or at or past max_length


def pieces(offsets: Tensor, total: int, max_length: int | None) -> Pieces:
    """Cut rows (B >= 1, T >= 1) in pieces."""
    num_rows = offsets.shape[0] - 1
    size = (total + num_rows - 1) // num_rows
    count = total // size + num_rows
    bounds = offsets.to(torch.int64)
    # Row i owns the pieces from first[i] on: no fewer than it needs, and no cumulative sum.
    first = bounds.div(size, rounding_mode="floor")
    first += torch.arange(num_rows + 1, device=offsets.device)
    index = torch.arange(count, device=offsets.device)
    row = torch.searchsorted(first[1:], index, right=True).clamp_(max=num_rows - 1)
    position = ((index - first.index_select(0, row)) * size)[:, None]
    position = position + torch.arange(size, device=offsets.device)
    length = torch.diff(bounds)
    if max_length is not None:
        length = length.clamp(max=max_length)
    padding = position >= length.index_select(0, row)[:, None]
    source = (bounds.index_select(0, row)[:, None] + position).clamp_(max=total - 1)
    where = elements(offsets, total, max_length)
    slot = first.index_select(0, where.row) * size + where.position
    slot = torch.where(where.valid, slot, 0)
    return Pieces(row, source, padding, slot, where.row, ~where.valid)


def gather(values: Tensor, cut: Pieces) -> Tensor:
    """`values` [T, K] as float32 (float64) pieces [pieces, P, K], 0 in the padding."""
    out = values.index_select(0, cut.source.flatten())
    out = clear(out, cut.padding.flatten()).reshape(*cut.source.shape, values.shape[1])
    return out if out.dtype == torch.float64 else out.float()


def scatter(product: Tensor, cut: Pieces) -> Tensor:
    """Pieces [pieces, P, N] back as elements [T, N]; 0 for elements that are in no piece."""
    return clear(product.flatten(0, 1).index_select(0, cut.slot), cut.outside)


def matrices(dense: Tensor, cut: Pieces) -> Tensor:
    """The matrix of each piece's row [pieces, K, N], in float32 (float64)."""
    out = dense.index_select(0, cut.row)
    return out if out.dtype == torch.float64 else out.float()


def sum_pieces(product: Tensor, cut: Pieces, num_rows: int) -> Tensor:
    """Sum of the pieces [pieces, M, N] of each row [B, M, N], a few of the M at a time.

    The sums are kept in float64, and a copy of all products in float64 would be too large.
    """
    count, height, width = product.shape
    out = product.new_empty(num_rows, height, width)
    step = max(_SUMMED // max(count * width, 1), 1)
    for start in range(0, height, step):
        part = slice(start, start + step)
        out[:, part] = sum_rows(product[:, part], cut.row, num_rows)
    return out
