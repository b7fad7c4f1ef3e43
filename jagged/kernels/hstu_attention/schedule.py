"""The work list of the attention kernels: one entry a block of a row, longest rows first.

A grid of B x N / BLOCK programs is mostly idle where row lengths are skewed. The list has at most
T / BLOCK + B entries, a number that the host knows without asking the device. Rows are sorted by
their number of blocks, so that the last programs to start are short ones; the blocks of a row stay
together, so that its keys and values are read from the L2 cache after the first of them.

One launch. Where rows are short, `short` and `short_backward` do without a list.
"""

import helion.language as hl
import torch
from torch import Tensor

from jagged.tuning.configs import Config
from jagged.tuning.launch import launchable

SORTED_ROWS = 4096  # sorting by counting costs B^2 comparisons: beyond this, rows keep their order


def work_list(offsets: Tensor, total: int, max_length: int, block: int) -> Tensor:
    """[slots, 2] int32: row and block of each program; block -1 for a slot without work.

    Of a row only the blocks that begin below `max_length` are listed. A row's blocks come last
    block first, the longest one of a causal forward.
    """
    rows = offsets.shape[0] - 1
    most = -(-max_length // block)
    slots = total // block + rows
    if rows <= SORTED_ROWS:
        slots = min(slots, rows * most)
    table = torch.empty((slots, 2), dtype=torch.int32, device=offsets.device)
    if rows <= SORTED_ROWS:
        list_sorted(SORTED, offsets, table, most, block)
    else:
        list_in_order(IN_ORDER, offsets, table, most, block)
    return table


@launchable()
def list_sorted(offsets: Tensor, table: Tensor, most: int, BLOCK: hl.constexpr) -> None:
    """A program owns a tile of rows: counts the blocks before each of them, then lists its own."""
    rows = offsets.size(0) - 1
    slots = table.size(0)
    shift = BLOCK.bit_length() - 1
    for tile in hl.tile(rows):
        length = (offsets[tile.index + 1] - offsets[tile.index]).to(torch.int32)
        blocks = torch.clamp((length + (BLOCK - 1)) >> shift, max=most)
        begin = hl.zeros([tile], dtype=torch.int32)
        used = hl.zeros([tile], dtype=torch.int32)
        for other in hl.tile(rows):
            length_other = (offsets[other.index + 1] - offsets[other.index]).to(torch.int32)
            blocks_other = torch.clamp((length_other + (BLOCK - 1)) >> shift, max=most)
            same = blocks_other[None, :] == blocks[:, None]
            same = same & (other.index[None, :] < tile.index[:, None])
            before = (blocks_other[None, :] > blocks[:, None]) | same
            begin = begin + torch.where(before, blocks_other[None, :], 0).sum(1).to(torch.int32)
            used = used + blocks_other.sum(0).to(torch.int32)
        for i in hl.grid(torch.amax(blocks)):
            mine = i < blocks
            hl.store(table, [begin + i, 0], tile.index.to(torch.int32), extra_mask=mine)
            hl.store(table, [begin + i, 1], blocks - 1 - i, extra_mask=mine)
        for i in hl.grid((slots - torch.amax(used) + (rows - 1)) // rows):
            slot = used + tile.index + i * rows
            hl.store(table, [slot, 0], used * 0, extra_mask=slot < slots)
            hl.store(table, [slot, 1], used * 0 - 1, extra_mask=slot < slots)


@launchable()
def list_in_order(offsets: Tensor, table: Tensor, most: int, BLOCK: hl.constexpr) -> None:
    """Row r owns the slots from offsets[r] // BLOCK + r on: nothing to count, one unused a row."""
    rows = offsets.size(0) - 1
    slots = table.size(0)
    shift = BLOCK.bit_length() - 1
    for tile in hl.tile(rows):
        past = offsets[tile.index + 1]
        length = (past - offsets[tile.index]).to(torch.int32)
        blocks = torch.clamp((length + (BLOCK - 1)) >> shift, max=most)
        begin = (offsets[tile.index] >> shift) + tile.index
        owned = ((past >> shift) + tile.index + 1 - begin).to(torch.int32)
        for i in hl.grid(torch.amax(owned)):
            mine = i < owned
            block = torch.where(i < blocks, blocks - 1 - i, -1)
            hl.store(table, [begin + i, 0], tile.index.to(torch.int32), extra_mask=mine)
            hl.store(table, [begin + i, 1], block, extra_mask=mine)
        used = (offsets[rows] >> shift) + rows
        for i in hl.grid((slots - used + (rows - 1)) // rows):
            slot = used + tile.index + i * rows
            hl.store(table, [slot, 0], tile.index.to(torch.int32) * 0, extra_mask=slot < slots)
            hl.store(table, [slot, 1], tile.index.to(torch.int32) * 0 - 1, extra_mask=slot < slots)


SORTED = Config({"block_sizes": [16, 512], "num_warps": 4})
IN_ORDER = Config({"block_sizes": [32], "num_warps": 1})
