"""Step 9. What `hl.jagged_tile` refuses, and what to write instead.

Helion refuses when it reads the kernel, before anything runs: `InvalidJaggedTileUsage`, by itself
or inside of another error that names the line.
"""

import helion
import helion.language as hl
import torch
from helion.exc import InductorLoweringError, InvalidJaggedTileUsage
from torch import Tensor

from examples.helion_tutorial.workshop import check, ragged, refused

PLAIN = {"config": helion.Config(block_sizes=[4, 8]), "static_shapes": False}


@helion.kernel(**PLAIN)
def outermost(lengths: Tensor) -> Tensor:
    """A jagged tile has no rows of its own: which program would own what?

    Instead: `for tile_b in hl.tile(rows)` around it.
    """
    out = torch.zeros_like(lengths)
    for tile_k in hl.jagged_tile(lengths):
        out[tile_k] = 1
    return out


@helion.kernel(**PLAIN)
def without_its_parent(values: Tensor, offsets: Tensor) -> Tensor:
    """`values[tile_k]` would be the same elements for every row, under the mask of none.

    Instead: an index with the parent's dimension, `starts[:, None] + tile_k.index[None, :]`, or
    `x[tile_b, tile_k]` for a dense x [B, N] of which each row has a length of its own.
    """
    rows = offsets.size(0) - 1
    out = torch.zeros([rows], dtype=values.dtype, device=values.device)
    for tile_b in hl.tile(rows):
        lengths = offsets[tile_b.index + 1] - offsets[tile_b]
        sums = hl.zeros([tile_b], dtype=torch.float32)
        for tile_k in hl.jagged_tile(lengths):
            block = values[tile_k]
            sums = sums + block.sum(dim=0)
        out[tile_b] = sums
    return out


@helion.kernel(**PLAIN)
def dense_row_sum(x: Tensor, lengths: Tensor) -> Tensor:
    """What `without_its_parent` may be for a dense x [B, N]: the first `lengths` of each row."""
    out = torch.zeros([x.size(0)], dtype=x.dtype, device=x.device)
    for tile_b in hl.tile(x.size(0)):
        own = lengths[tile_b]
        sums = hl.zeros([tile_b], dtype=torch.float32)
        for tile_k in hl.jagged_tile(own):
            sums = sums + x[tile_b, tile_k].sum(dim=1)
        out[tile_b] = sums
    return out


@helion.kernel(**PLAIN)
def scalar_parent(values: Tensor, offsets: Tensor) -> Tensor:
    """One row has one length, a number: nothing is jagged.

    Instead: `for tile_t in hl.tile(start, end)`, as in `jagged_tiles.one_row_each`.
    """
    rows = offsets.size(0) - 1
    out = torch.zeros([rows], dtype=values.dtype, device=values.device)
    for row in hl.grid(rows):
        start = offsets[row]
        length = offsets[row + 1] - start
        sums = hl.zeros([], dtype=torch.float32)
        for tile_k in hl.jagged_tile(length):
            sums = sums + values[start + tile_k.index].sum()
        out[row] = sums
    return out


@helion.kernel(**PLAIN)
def parent_of_the_host(values: Tensor, lengths: Tensor) -> Tensor:
    """`lengths` of all rows belongs to no tile. Instead: `hl.jagged_tile(lengths[tile_b])`."""
    out = torch.zeros([lengths.size(0)], dtype=values.dtype, device=values.device)
    for tile_b in hl.tile(lengths.size(0)):
        sums = hl.zeros([tile_b], dtype=torch.float32)
        for tile_k in hl.jagged_tile(lengths):
            sums = sums + values[tile_b, tile_k].sum(dim=1)
        out[tile_b] = sums
    return out


@helion.kernel(**PLAIN)
def mean_of_a_block(values: Tensor, offsets: Tensor) -> Tensor:
    """A block's mean divides by the block. Instead: sum, then divide by the row's length."""
    rows = offsets.size(0) - 1
    out = torch.zeros([rows], dtype=values.dtype, device=values.device)
    for tile_b in hl.tile(rows):
        starts = offsets[tile_b]
        lengths = offsets[tile_b.index + 1] - starts
        sums = hl.zeros([tile_b], dtype=torch.float32)
        for tile_k in hl.jagged_tile(lengths):
            sums = sums + values[starts[:, None] + tile_k.index[None, :]].mean(dim=1)
        out[tile_b] = sums
    return out


def main() -> None:
    values, offsets = ragged([3, 0, 5, 2])
    lengths = offsets.diff()
    padded = values.new_zeros(4, 5)
    no_tile = "cannot be outermost loop or get host tensor as a parent"
    refused("outermost", InvalidJaggedTileUsage, no_tile, lambda: outermost(lengths))
    refused(
        "a parent of no tile",
        InvalidJaggedTileUsage,
        no_tile,
        lambda: parent_of_the_host(padded, lengths),
    )
    refused(
        "x[tile_k] without its parent",
        InvalidJaggedTileUsage,
        "jagged_tile alone cannot be used without its parent",
        lambda: without_its_parent(values, offsets),
    )
    refused(
        "a scalar parent",
        InvalidJaggedTileUsage,
        "only accepts a tensor with rank >= 1 as an argument",
        lambda: scalar_parent(values, offsets),
    )
    refused(
        "a mean over the jagged dimension",
        InductorLoweringError,
        "divide the sum by the row's length instead",
        lambda: mean_of_a_block(values, offsets),
    )
    check("x[tile_b, tile_k]", dense_row_sum(padded + 1, lengths), lengths)


if __name__ == "__main__":
    main()
