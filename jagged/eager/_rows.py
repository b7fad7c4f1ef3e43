"""Where each element of a jagged tensor lives, computed without reading the offsets on the host.

`read_offsets` is the exception, for code that has to.

Symbols: T elements, B rows. Elements of the capacity tail belong to no row and are given the row
B, so that reductions collect them in one row too many, which is dropped.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from jagged._rows import row_ids

# Unsigned numbers that torch neither indexes nor fills, and what holds their bits.
SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


class Elements(NamedTuple):
    """For each of T elements: its row (B for the capacity tail) and its place in the row."""

    row: Tensor  # [T] int64, 0..B; B marks an element that belongs to no row
    position: Tensor  # [T] int64; for the tail counted from the end of the last row
    valid: Tensor  # [T] bool, False for the tail and at or past `max_length` where that is given


def read_offsets(numbers: Tensor) -> list[int]:
    """Integers [n] that follow from offsets, on the host.

    All that is read as numbers goes through here, so that one search finds who would wait for a
    GPU: HSTU attention alone, which cuts its batch by lengths.
    """
    found: list[int] = numbers.tolist()
    return found


def elements(offsets: Tensor, total: int, max_length: int | None = None) -> Elements:
    """Row, position and validity of each of `total` elements."""
    row = row_ids(offsets, total)
    position = torch.arange(total, device=offsets.device)
    position -= offsets.index_select(0, row)
    valid = row < offsets.shape[0] - 1
    if max_length is not None:
        valid &= position < max_length
    return Elements(row, position, valid)


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """What is computed in between: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def accumulated(values: Tensor) -> Tensor:
    """`values` in the accumulation dtype, contiguous; itself where it is both already."""
    return values.to(accumulation_dtype(values.dtype)).contiguous()


def contiguous_copy(values: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A new contiguous tensor of these values, in another dtype where one is given."""
    out = torch.empty(values.shape, dtype=dtype or values.dtype, device=values.device)
    return out.copy_(values)


def over_trailing(flag: Tensor, like: Tensor) -> Tensor:
    """A [T] tensor shaped so that it broadcasts over the trailing dimensions of `like`."""
    return flag.reshape(flag.shape + (1,) * (like.ndim - 1))


def in_tail(offsets: Tensor, total: int) -> Tensor:
    """[total] bool: which elements lie in the capacity tail."""
    return torch.arange(total, device=offsets.device) >= offsets[-1:]


def clear(out: Tensor, outside: Tensor, value: float = 0) -> Tensor:
    """Write `value` over the elements of `out` [T, ...] that `outside` [T] marks, in place.

    They are few or none as a rule. On the CPU it is free to find out which, and several times
    faster than to look at every number; on a GPU it would wait for the device.
    """
    if out.is_cpu:
        return out.index_fill_(0, outside.nonzero().squeeze(1), value)
    return out.masked_fill_(over_trailing(outside, out), value)


def sum_rows(values: Tensor, row: Tensor, num_rows: int) -> Tensor:
    """Sum of `values` [T, ...] by row [B, ...] in the accumulation dtype; the tail is dropped.

    The elements of a row are added one after the other, so float32 sums are kept in float64: a
    row of thousands of elements is as exact as `torch.sum`, which adds in a tree. For the 16-bit
    dtypes float32 is exact enough. The order is fixed, and no row depends on another.
    """
    sums = _sums(values, row, num_rows)[:num_rows]
    return sums.to(accumulation_dtype(values.dtype), copy=True)


def sum_all_rows(values: Tensor, row: Tensor, num_rows: int) -> Tensor:
    """As `sum_rows`, with the sum of the tail as the last of B + 1 rows."""
    return _sums(values, row, num_rows).to(accumulation_dtype(values.dtype))


def _sums(values: Tensor, row: Tensor, num_rows: int) -> Tensor:
    wide = torch.float32 if values.itemsize == 2 else torch.float64
    out = torch.zeros((num_rows + 1, *values.shape[1:]), dtype=wide, device=values.device)
    return out.index_add_(0, row, values.to(wide))


def max_all_rows(values: Tensor, row: Tensor, num_rows: int) -> Tensor:
    """Maximum of `values` [T, ...] by row, [B + 1, ...]; -inf for an empty row."""
    shape = (num_rows + 1, *values.shape[1:])
    out = torch.full(shape, -torch.inf, dtype=values.dtype, device=values.device)
    index = over_trailing(row, values).expand_as(values)
    return out.scatter_reduce_(0, index, values, "amax")


def spread_rows(per_row: Tensor, row: Tensor) -> Tensor:
    """`per_row` [B, ...] read at each element's row [T, ...]; 0 for the tail."""
    padded = torch.cat([per_row, per_row.new_zeros((1, *per_row.shape[1:]))])
    return padded.index_select(0, row)


def pad(values: Tensor, offsets: Tensor, length: int, padding_value: float = 0.0) -> Tensor:
    """The rows as dense [B, N, ...] with N = `length`; longer rows are cut."""
    shape = (offsets.shape[0] - 1, length, *values.shape[1:])
    if values.shape[0] == 0:
        return values.new_full(shape, padding_value)
    bounds = offsets.to(torch.int64)
    position = torch.arange(length, device=offsets.device)
    source = (bounds[:-1, None] + position).clamp_(max=values.shape[0] - 1)
    # Written in place, since a reshaped result would be a view, which autograd protects from `+=`.
    out = values.new_empty(shape)
    cells = out.flatten(0, 1)
    torch.index_select(values, 0, source.flatten(), out=cells)
    clear(cells, (position >= torch.diff(bounds)[:, None]).flatten(), padding_value)
    return out


def unpad(dense: Tensor, offsets: Tensor, total: int) -> Tensor:
    """The cells of `dense` [B, N, ...] that rows cover [total, ...]; 0 past N and in the tail."""
    return take_cells(dense, elements(offsets, total, dense.shape[1]))


def take_cells(dense: Tensor, where: Elements) -> Tensor:
    """The cell of `dense` [B, N, ...] of each element [T, ...]; 0 where it has none."""
    batch, length = dense.shape[:2]
    if batch * length == 0:
        return dense.new_zeros((where.row.shape[0], *dense.shape[2:]))
    cell = torch.where(where.valid, where.row * length + where.position, 0)
    out = dense.reshape(batch * length, *dense.shape[2:]).index_select(0, cell)
    return clear(out, ~where.valid)
