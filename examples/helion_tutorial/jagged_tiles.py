"""Step 8. Rows of unequal length.

A jagged tensor packs its rows one after the other: values [T, ...] and offsets [B + 1], row i is
`values[offsets[i] : offsets[i + 1]]`. A tile of rows has as many lengths as rows, so an inner loop
over their elements must go to the longest of them and mask the others.

`hl.jagged_tile(lengths)` is that loop. Its rules:

- the **parent** `lengths` is a tensor of at least one dimension, each of which belongs to a tile of
  an enclosing loop: usually one number a row. Give it a name before the loop (Helion 1.5 stops at
  an expression in its place), and a block size in the config for each loop
- what is loaded with the jagged tile carries the parent's dimension as well:
  `x[starts[:, None] + tile_k.index[None, :]]`, not `x[tile_k]`
- loads behind the end of a row give 0, stores there are dropped, and `sum` and `amax` see their
  neutral element; `mean` is refused, since it would divide by the length of the block
- jagged tiles may be nested, for elements and features that both vary
- where the inner bound is the same for all rows, a plain `hl.tile` is right

The loop runs as long as the longest row of its tile, also for the short ones. Where rows are long,
give a program one row and loop over exactly its elements, as `one_row_each` does.
"""

from itertools import pairwise

import helion
import helion.language as hl
import torch
from torch import Tensor

from examples.helion_tutorial.workshop import DEVICE, check, ragged, say
from jagged import ops

LENGTHS = [3, 0, 17, 8, 1, 25, 0, 6]


@helion.kernel(config=helion.Config(block_sizes=[4, 8]), static_shapes=False)
def row_sum(values: Tensor, offsets: Tensor) -> Tensor:
    """One parent. values [T], offsets [B + 1] -> [B]."""
    rows = offsets.size(0) - 1
    out = torch.empty([rows], dtype=values.dtype, device=values.device)
    for tile_b in hl.tile(rows):
        starts = offsets[tile_b]
        lengths = offsets[tile_b.index + 1] - starts
        sums = hl.zeros([tile_b], dtype=torch.float32)
        for tile_k in hl.jagged_tile(lengths):
            sums = sums + values[starts[:, None] + tile_k.index[None, :]].sum(dim=1)
        out[tile_b] = sums.to(values.dtype)
    return out


@helion.kernel(config=helion.Config(block_sizes=[4, 8]), static_shapes=False)
def row_sum_by_hand(values: Tensor, offsets: Tensor) -> Tensor:
    """What `row_sum` is short for: the loop to the longest row, and the mask at each load."""
    rows = offsets.size(0) - 1
    out = torch.empty([rows], dtype=values.dtype, device=values.device)
    for tile_b in hl.tile(rows):
        starts = offsets[tile_b]
        lengths = offsets[tile_b.index + 1] - starts
        sums = hl.zeros([tile_b], dtype=torch.float32)
        for tile_k in hl.tile(lengths.amax()):
            inside = tile_k.index[None, :] < lengths[:, None]
            index = starts[:, None] + tile_k.index[None, :]
            sums = sums + hl.load(values, [index], extra_mask=inside).sum(dim=1)
        out[tile_b] = sums.to(values.dtype)
    return out


@helion.kernel(config=helion.Config(block_sizes=[4, 8, 8]), static_shapes=False)
def nested_mean(values: Tensor, offsets: Tensor, widths: Tensor) -> Tensor:
    """Nested. Mean of each row over its elements, of its first `widths[row]` features.

    values [T, D], offsets [B + 1], widths [B] -> [B, D], 0 in the other features.
    """
    rows = offsets.size(0) - 1
    out = torch.zeros([rows, values.size(1)], dtype=values.dtype, device=values.device)
    for tile_b in hl.tile(rows):
        starts = offsets[tile_b]
        lengths = offsets[tile_b.index + 1] - starts
        # Not the block's size but the row's own length; 1 keeps an empty row from 0 / 0.
        count = torch.where(lengths > 0, lengths, 1).to(torch.float32)
        features = widths[tile_b]
        for tile_d in hl.jagged_tile(features):
            sums = hl.zeros([tile_b, tile_d], dtype=torch.float32)
            for tile_k in hl.jagged_tile(lengths):
                elements = starts[:, None] + tile_k.index[None, :]
                sums = sums + values[elements[:, :, None], tile_d.index[None, None, :]].sum(dim=1)
            out[tile_b, tile_d] = (sums / count[:, None]).to(values.dtype)
    return out


@helion.kernel(config=helion.Config(block_sizes=[4, 16, 8, 8]), static_shapes=False)
def row_softmax(values: Tensor, offsets: Tensor) -> Tensor:
    """The online recurrence of step 2 along each row, for each feature. values, result [T, D].

    All rows have the same features, so theirs is a plain tile.
    """
    rows = offsets.size(0) - 1
    width = hl.specialize(values.size(1))
    out = torch.zeros_like(values)
    for tile_b, tile_d in hl.tile([rows, width]):
        starts = offsets[tile_b]
        lengths = offsets[tile_b.index + 1] - starts
        top = hl.full([tile_b, tile_d], float("-inf"), dtype=torch.float32)
        mass = hl.zeros([tile_b, tile_d], dtype=torch.float32)
        for tile_k in hl.jagged_tile(lengths):
            block = values[starts[:, None] + tile_k.index[None, :], tile_d].to(torch.float32)
            higher = torch.maximum(top, block.amax(dim=1))
            mass = mass * torch.exp(top - higher) + torch.exp(block - higher[:, None, :]).sum(dim=1)
            top = higher
        for tile_k in hl.jagged_tile(lengths):
            index = starts[:, None] + tile_k.index[None, :]
            block = values[index, tile_d].to(torch.float32)
            weights = torch.exp(block - top[:, None, :]) / mass[:, None, :]
            out[index, tile_d] = weights.to(values.dtype)
    return out


@helion.kernel(config=helion.Config(block_sizes=[16, 8]), static_shapes=False)
def one_row_each(values: Tensor, offsets: Tensor) -> Tensor:
    """Without a jagged tile: a program owns one row and a tile of features. [T, D] -> [B, D].

    The loop begins and ends where the row does, and reads whole lines of memory.
    """
    rows = offsets.size(0) - 1
    width = hl.specialize(values.size(1))
    out = torch.empty([rows, width], dtype=values.dtype, device=values.device)
    for tile_b, tile_d in hl.tile([rows, width], block_size=[1, None]):
        start = offsets[tile_b.begin]
        end = offsets[tile_b.begin + 1]
        sums = hl.zeros([tile_d], dtype=torch.float32)
        for tile_t in hl.tile(start, end):
            sums = sums + values[tile_t, tile_d].to(torch.float32).sum(dim=0)
        out[tile_b.begin, tile_d] = sums.to(values.dtype)
    return out


def main() -> None:
    numbers, offsets = ragged(LENGTHS)
    values, _ = ragged(LENGTHS, 20)
    rows = [values[begin:end] for begin, end in pairwise(offsets)]
    sums = torch.stack([row.double().sum(0) for row in rows])

    expected = torch.segment_reduce(numbers.double(), "sum", offsets=offsets)
    check("one parent", row_sum(numbers, offsets), expected, 1e-4)
    check("the same by hand, with extra_mask", row_sum_by_hand(numbers, offsets), expected, 1e-4)

    widths = torch.tensor([20, 5, 0, 9, 20, 1, 7, 13], device=DEVICE)
    counts = offsets.diff().clamp(min=1)[:, None]
    kept = torch.arange(20, device=DEVICE) < widths[:, None]
    expected = torch.where(kept, sums / counts, 0.0)
    check("nested: elements x features", nested_mean(values, offsets, widths), expected, 1e-4)

    expected = torch.cat([row.double().softmax(0) for row in rows])
    check("softmax along each row", row_softmax(values, offsets), expected, 1e-4)
    check("a program for each row", one_row_each(values, offsets), sums, 1e-4)

    # What this package makes of it: the same, with gradients, for all dtypes and on both devices.
    check("jagged.ops.sum", ops.sum(values, offsets), sums, 1e-4)
    check("jagged.ops.softmax", ops.softmax(values, offsets), expected, 1e-4)
    say(f"rows of {LENGTHS} elements")


if __name__ == "__main__":
    main()
