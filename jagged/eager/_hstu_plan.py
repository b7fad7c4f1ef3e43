"""How attention cuts a batch: sections of neighbouring rows, tiles of rows of similar length.

A section is a run of rows whose padded elements fit a budget of memory. Inside it the rows are
sorted by their padded size, and each tile holds rows of one size. Results of the tiles stand
behind one another in a buffer of slots, from which one gather makes the elements of the section.

A row's padded size, and how its queries are cut, depend on its own length alone, so what is
computed for a row does not depend on the rows beside it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from jagged.eager._rows import read_offsets

_ONE_BLOCK = 256  # the longest row whose pairs are one block


class Budget(NamedTuple):
    """Limits that keep temporaries small."""

    heads: int
    slots: int  # of one section
    scores: int  # elements of scores that are worked on at once

    def queries(self, size: int) -> int:
        """How many queries of a row padded to `size` make a block."""
        return size if size <= _ONE_BLOCK else min(max(self.scores // size, 32), 128)

    def rows(self, size: int) -> int:
        """How many rows padded to `size` make a tile."""
        return 1 if size > _ONE_BLOCK else max(self.scores // (self.heads * size * size), 1)

    def head_groups(self, scores: int) -> list[slice]:
        """The heads that are taken together, when a head has that many scores."""
        if scores * self.heads <= self.scores:
            return [slice(0, self.heads)]
        return [slice(head, head + 1) for head in range(self.heads)]


class Tile(NamedTuple):
    """R rows padded to `size` elements; their results are in the slots [H, R, size]."""

    rows: Tensor  # [R] int64
    size: int
    first_slot: int
    heads: int

    def of(self, buffer: Tensor) -> Tensor:
        """[H, R, size, X]: the tile's part of `buffer` [slots, X]."""
        rows, size, features = self.rows.shape[0], self.size, buffer.shape[1]
        part = buffer[self.first_slot : self.first_slot + self.heads * rows * size]
        return part.view(self.heads, rows, size, features)


class Section(NamedTuple):
    """Neighbouring rows: the elements first..last."""

    first: int
    last: int
    tiles: list[Tile]
    slots: int
    slot: Tensor  # [(last - first) * H] int64: where an element's head stands, `slots` for none

    def buffer(self, features: int, like: Tensor) -> Tensor:
        """[slots + 1, features] for results; the last slot holds 0, for elements without one."""
        made = like.new_empty((self.slots + 1, features))
        made[-1].zero_()
        return made

    def write(self, buffer: Tensor, out: Tensor) -> None:
        """Put the elements of this section from `buffer` into `out` [T, H, X]."""
        part = out[self.first : self.last].flatten(0, 1)
        torch.index_select(buffer.to(out.dtype), 0, self.slot, out=part)


def padded_size(length: Tensor) -> Tensor:
    """To what rows are padded: few sizes for short rows, of which many share a tile."""
    fine, coarse = (length + 7) // 8 * 8, (length + 31) // 32 * 32
    return torch.where(length <= 32, fine, torch.where(length <= 256, coarse, length))


def sections(bounds: Tensor, max_length: int, budget: Budget) -> Iterator[Section]:
    """The sections of a batch of B > 0 rows, given its offsets in int64, which the host reads."""
    lengths = bounds.diff()
    seen = lengths.clamp(max=max_length)
    size = padded_size(seen)
    slots = (size * budget.heads).cumsum(0)
    counts = [lengths.shape[0]]
    if read_offsets(slots[-1:])[0] > budget.slots:
        number = (slots - 1).clamp_(min=0) // budget.slots
        counts = read_offsets(torch.unique_consecutive(number, return_counts=True)[1])
    row = 0
    for count in counts:
        rows = slice(row, row + count)
        yield _section(row, bounds[row : row + count + 1], seen[rows], size[rows], budget)
        row += count


def _section(row: int, bounds: Tensor, seen: Tensor, size: Tensor, budget: Budget) -> Section:
    heads = budget.heads
    first, last = read_offsets(torch.stack((bounds[0], bounds[-1])))
    sorted_size, order = torch.sort(size, stable=True)
    tiles, slots = _tiles(sorted_size, order + row, budget)
    # In sorted order: the slot of a row's first element, and how far apart its heads are.
    rows_of_tile = order.new_tensor([tile.rows.shape[0] for tile in tiles])
    tile_of = torch.repeat_interleave(rows_of_tile, output_size=order.shape[0])
    place = torch.arange(order.shape[0], device=order.device)
    place -= (rows_of_tile.cumsum(0) - rows_of_tile)[tile_of]
    first_slot = order.new_tensor([tile.first_slot for tile in tiles])[tile_of]
    first_slot += place * sorted_size
    between_heads = rows_of_tile[tile_of] * sorted_size
    by_head = torch.arange(heads, device=order.device) * between_heads[:, None]
    table = torch.empty_like(by_head).index_copy_(0, order, first_slot[:, None] + by_head)
    # An element stands as far behind its row's first slot as behind its row's first element.
    inside, lengths = bounds[:-1] - first, bounds.diff()
    slot = torch.repeat_interleave(table - inside[:, None], lengths, 0, output_size=last - first)
    element = torch.arange(last - first, device=order.device)
    slot += element[:, None]
    if read_offsets((lengths - seen).max()[None]) != [0]:
        end = torch.repeat_interleave(inside + seen, lengths, output_size=last - first)
        slot.masked_fill_((element >= end)[:, None], slots)
    tiles = [tile for tile in tiles if tile.size > 0]
    return Section(first, last, tiles, slots, slot.flatten())


def _tiles(sorted_size: Tensor, rows: Tensor, budget: Budget) -> tuple[list[Tile], int]:
    """Tiles of `rows` [R], sorted by size, and the number of their slots."""
    sizes, counts = torch.unique_consecutive(sorted_size, return_counts=True)
    tiles, slots, begin = [], 0, 0
    for size, count in zip(read_offsets(sizes), read_offsets(counts), strict=True):
        step = count if size == 0 else budget.rows(size)
        for start in range(begin, begin + count, step):
            tile = Tile(rows[start : min(start + step, begin + count)], size, slots, budget.heads)
            tiles.append(tile)
            slots += tile.rows.shape[0] * size * budget.heads
        begin += count
    return tiles, slots
