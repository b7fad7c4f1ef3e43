"""The keys that a query of HSTU attention sees, as an interval of positions and itself.

`HSTUMask.keep` says what the mask means. Ids never decrease along a row, so the keys that a query
sees are one interval [first, last) of positions and, for targets, the query itself: cheap to
compute for every query, and it tells which blocks of keys a block of queries needs at all.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from jagged.eager._rows import read_offsets


class Shape(NamedTuple):
    """The numbers of an `HSTUMask`, as the flat op takes them."""

    window: int
    contextual: int
    min_full: int

    def depends_on_length(self) -> bool:
        """Whether rows without targets and of different lengths have different masks."""
        return self.contextual > 0 or (self.window > 0 and self.min_full > 0)


class Intervals(NamedTuple):
    """Keys [first, last) of each query; R is 1 where all rows have one mask. int64."""

    position: Tensor  # [R, n] of the query itself
    first: Tensor | None  # [R, n]; None where every interval starts with the row
    last: Tensor  # [R, n]
    targets: bool  # whether a query may lie outside its own interval

    def block(self, block: "Block") -> Tensor:
        """[R, queries, keys] bool: the mask of one block."""
        queries = block.queries
        key = torch.arange(block.key_start, block.key_end, device=self.last.device)
        keep = key < self.last[:, queries, None]
        if self.first is not None:
            keep &= key >= self.first[:, queries, None]
        if self.targets:
            keep |= key == self.position[:, queries, None]
        return keep


class Block(NamedTuple):
    """Queries and keys, as positions in the row, whose scores are computed together."""

    query_start: int
    query_end: int
    key_start: int
    key_end: int
    full: bool  # every query sees every key: no mask needed

    @property
    def queries(self) -> slice:
        return slice(self.query_start, self.query_end)

    @property
    def keys(self) -> slice:
        return slice(self.key_start, self.key_end)


def intervals(position: Tensor, length: Tensor, targets: Tensor | None, shape: Shape) -> Intervals:
    """Intervals of the queries at `position` [R, n], for `length` and `targets` [R, 1]."""
    window, contextual, min_full = shape
    shift = contextual - 1 if contextual > 0 else 0
    end = length if targets is None else length - targets
    history = end - shift
    identity = position if contextual == 0 else (position - shift).clamp_(min=0)
    if targets is not None:
        identity = torch.minimum(identity, history)
    # Keys with a smaller id end at identity + shift; history joins itself, targets stand apart.
    last = identity + shift
    last = last + (last == position)
    if contextual > 0:
        last = torch.where(identity == 0, end, last)
    first = None
    if window > 0:
        reach = identity - window
        first = torch.where(reach > 0, reach + shift, 0)
        if min_full > 0:
            first = torch.where(identity >= history - min_full, 0, first)
    if contextual > 0:
        # Fewer elements than the context before the targets: everybody sees itself alone.
        alone = history <= 0
        first = torch.where(alone, position, 0 if first is None else first)
        last = torch.where(alone, position + 1, last)
    return Intervals(position, first, last, targets is not None)


def blocks(spans: Intervals, length: int, queries: int) -> list[Block]:
    """Blocks of at most `queries` queries that cover all pairs seen in rows padded to `length`."""
    if length <= queries:
        return [Block(0, length, 0, length, full=False)]
    lowest_first, highest_first = _range_over_rows(spans.first, length)
    lowest_last, highest_last = _range_over_rows(spans.last, length)
    found = []
    for start in range(0, length, queries):
        end = min(start + queries, length)
        rows = slice(start, end)
        low, high = min(lowest_first[rows]), min(max(highest_last[rows]), length)
        full = max(highest_first[rows]) <= low and min(lowest_last[rows]) >= high
        outside = any(lowest_last[i] <= i for i in range(start, end))
        if not outside:
            found.append(Block(start, end, low, high, full))
        elif high > start:
            found.append(Block(start, end, low, max(high, end), full=False))
        else:
            # Targets far behind their history: two blocks of keys instead of the way between.
            if high > low:
                found.append(Block(start, end, low, high, full))
            found.append(Block(start, end, start, end, full=False))
    return found


def _range_over_rows(ends: Tensor | None, length: int) -> tuple[list[int], list[int]]:
    """Smallest and largest over the rows, for each query."""
    if ends is None:
        return [0] * length, [0] * length
    low, high = torch.aminmax(ends, dim=0)
    return read_offsets(low), read_offsets(high)
