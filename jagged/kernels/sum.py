"""Sum of each row."""

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels import sum_configs
from jagged.kernels._rows import as_matrix
from jagged.tuning.configs import ConfigTable
from jagged.tuning.launch import launchable

FORWARD = ConfigTable(sum_configs.FORWARD)
BACKWARD = ConfigTable(sum_configs.BACKWARD)


def forward(values: Tensor, offsets: Tensor) -> Tensor:
    rows = offsets.shape[0] - 1
    matrix = as_matrix(values)
    total, width = matrix.shape
    if total == 0:
        return values.new_zeros((rows, *values.shape[1:]))
    out = torch.empty((rows, width), dtype=values.dtype, device=values.device)
    if out.numel():
        _sum_rows(FORWARD.pick(values, width, rows), matrix, offsets, out)
    return out.view(rows, *values.shape[1:])


def backward(grad: Tensor, offsets: Tensor, total: int) -> Tensor:
    matrix = as_matrix(grad)
    rows, width = matrix.shape
    out = torch.empty((total, width), dtype=grad.dtype, device=grad.device)
    if rows == 0:
        out.zero_()
    elif out.numel():
        _spread_rows(BACKWARD.pick(out, width, rows), matrix, offsets, out, (rows + 1).bit_length())
    return out.view(total, *grad.shape[1:])


@launchable()
def _sum_rows(values: Tensor, offsets: Tensor, out: Tensor) -> None:
    """values [T, D], offsets [B + 1], out [B, D]. A program owns a tile of rows and features."""
    rows = offsets.size(0) - 1
    width = hl.specialize(values.size(1))
    for tile_row, tile_width in hl.tile([rows, width]):
        start = offsets[tile_row]
        length = offsets[tile_row.index + 1] - start
        total = hl.zeros([tile_row, tile_width], dtype=torch.float32)
        for tile in hl.jagged_tile(length):
            block = values[start[:, None] + tile.index[None, :], tile_width]
            total = total + block.to(torch.float32).sum(1)
        out[tile_row, tile_width] = total.to(out.dtype)


@launchable()
def _spread_rows(grad: Tensor, offsets: Tensor, out: Tensor, steps: int) -> None:
    """grad [B, D], offsets [B + 1], out [T, D]; steps: bits of B + 1.

    A program owns a tile of elements and finds the row of each by bisection: the last offset that
    is not beyond the element. So the work is even, whatever the lengths, and the capacity tail
    (row B) is one more row, of zeros.
    """
    rows = offsets.size(0) - 1
    width = hl.specialize(grad.size(1))
    for tile, tile_width in hl.tile([out.size(0), width]):
        row = hl.zeros([tile], dtype=torch.int32)
        end = row + rows + 1
        for _ in hl.grid(steps):
            middle = (row + end) // 2
            before = offsets[middle] <= tile.index
            row = torch.where(before, middle, row)
            end = torch.where(before, end, middle)
        block = hl.load(grad, [row, tile_width], extra_mask=(row < rows)[:, None])
        out[tile, tile_width] = block
