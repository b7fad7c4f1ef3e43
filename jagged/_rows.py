"""Offsets arithmetic in plain torch; none but `read_last` waits for a device."""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor

from jagged import checks


def as_index(rows: object, num_rows: int) -> Tensor:
    """An index [R] or a mask [B] that is sure to be one."""
    if not isinstance(rows, Tensor):
        if not isinstance(rows, Iterable):
            raise TypeError(
                f"rows must be a tensor, a slice or a list of rows, got {type(rows).__name__}: "
                "select([0]) takes one row"
            )
        listed = list(rows)
        rows = torch.tensor(listed, dtype=None if listed else torch.int64)
    if rows.ndim != 1:
        raise ValueError(
            f"rows must be an index [R] or a mask [B], got shape {checks.shape_of(rows)}"
        )
    if rows.dtype == torch.bool:
        checks.shape("mask", rows, (num_rows,), "[B]")
        return rows
    checks.integers("rows", rows)
    return rows.to(torch.int64)  # torch takes uint8 for a mask


def as_offsets(lengths: Tensor, capacity: int | None) -> Tensor:
    """Offsets [B + 1] of rows with these lengths [B]: int32 for int32 lengths, else int64.

    int32 is kept only where `capacity` says that the sum fits, since a cumulative sum in int32
    overflows without a word.
    """
    checks.tensor("lengths", lengths)
    checks.integers("lengths", lengths)
    if lengths.ndim != 1:
        raise ValueError(f"lengths must be one-dimensional [B], got {checks.shape_of(lengths)}")
    fits = capacity is not None and capacity < 2**31
    dtype = torch.int32 if lengths.dtype == torch.int32 and fits else torch.int64
    zero = torch.zeros(1, dtype=dtype, device=lengths.device)
    return torch.cat([zero, lengths.cumsum(0, dtype=dtype)])


def read_last(offsets: Tensor) -> int:
    """The number of elements, which a GPU is waited for; torch.compile is told that it is one.

    `int()` would make torch.export write today's number down.
    """
    total = cast(int, offsets[-1].item())
    torch._check(total >= 0)  # type: ignore[no-untyped-call]
    return total


def row_ids(offsets: Tensor, total: int) -> Tensor:
    """The row of each of `total` elements [total], int64; B for the capacity tail.

    Element t is past as many rows as end at or before t. Linear in T, where a search is not, and
    0..B whatever the offsets hold, where `torch.repeat_interleave` writes out of bounds.
    """
    ends = offsets[1:].to(torch.int64).clamp(min=0, max=total)
    ended = torch.zeros(total + 1, dtype=torch.int64, device=offsets.device)
    return ended.index_add_(0, ends, torch.ones_like(ends)).cumsum(0)[:total]


def gather_rows(values: Tensor, starts: Tensor, offsets: Tensor, total: int) -> Tensor:
    """Copy rows: row i of the result is `values[starts[i]:][:offsets[i + 1] - offsets[i]]`.

    Returns [total, ...]; elements past `offsets[-1]` are 0. Differentiable in `values`.
    """
    if values.shape[0] == 0:
        return values.new_zeros((total, *values.shape[1:]))
    # The tail is row B, for which `offsets` has an entry, and `starts` gets one.
    row = row_ids(offsets, total)
    valid = row < starts.shape[0]
    first = torch.nn.functional.pad(starts.to(torch.int64), (0, 1))[row]
    index = torch.arange(total, device=offsets.device)
    source = torch.where(valid, first + index - offsets[row], 0)
    taken = values[source]
    return torch.where(
        valid.reshape(valid.shape + (1,) * (values.ndim - 1)), taken, taken.new_zeros(())
    )
