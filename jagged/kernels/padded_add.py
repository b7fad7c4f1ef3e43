"""Rows, padded with 0, added to a dense tensor [B, N, ...].

Symbols: B rows, T elements (capacity included), N cells a row, F features.
"""

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels._copies import ELEMENTS, SPACE, to_elements
from jagged.kernels._elements import empty_like, merged
from jagged.tuning.configs import ConfigTable
from jagged.tuning.launch import launchable

__all__ = ["ELEMENTS", "FORWARD", "backward", "forward"]

# Block sizes: cells, features.
FORWARD = ConfigTable(__file__, "_add_padded", SPACE)


def forward(values: Tensor, offsets: Tensor, dense: Tensor) -> Tensor:
    out = empty_like(dense)
    if out.numel() == 0:
        return out
    if values.shape[0] == 0:
        return out.copy_(dense)
    rows, length = dense.shape[:2]
    source = merged(values, 1)
    width = source.shape[1]
    config = FORWARD.pick(source, width, rows)
    _add_padded(config, source, offsets, merged(dense, 2), out.view(rows * length, width))
    return out


def backward(grad: Tensor, offsets: Tensor, total: int) -> Tensor:
    return to_elements(grad, offsets, total)


@launchable(dynamic={"dense": (0, 1)})
def _add_padded(values: Tensor, offsets: Tensor, dense: Tensor, out: Tensor) -> None:
    """values [T, F], dense [B, N, F], out [B * N, F]. A program owns a block of cells."""
    length = dense.size(1)
    total = out.size(0)
    width = hl.specialize(out.size(1))
    for cells, features in hl.tile([total, width]):
        row = cells.index // length
        position = cells.index - row * length
        start = hl.load(offsets, [row])
        filled = position < hl.load(offsets, [row + 1]) - start
        element = hl.load(
            values,
            [(start + position)[:, None], features.index[None, :]],
            extra_mask=filled[:, None],
        )
        base = dense[row[:, None], position[:, None], features.index[None, :]]
        out[cells, features] = (base.to(torch.float32) + element.to(torch.float32)).to(out.dtype)
