"""One dense row [B, ...] added to every element of its row.

Symbols: B rows, T elements (capacity included), F features.
"""

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels import sum as row_sum
from jagged.kernels._copies import ELEMENTS, SPACE, filled_only
from jagged.kernels._elements import (
    bisection,
    bit_length,
    descent,
    levels_of,
    merged,
    row_within,
)
from jagged.tuning.configs import ConfigTable
from jagged.tuning.launch import launchable

__all__ = ["ELEMENTS", "FORWARD", "SUM", "backward", "forward"]

# Block sizes: elements, features.
FORWARD = ConfigTable(__file__, "_add_row", SPACE)
SUM = row_sum.FORWARD


def forward(values: Tensor, offsets: Tensor, dense: Tensor) -> Tensor:
    out = torch.empty(values.shape, dtype=values.dtype, device=values.device)
    if out.numel() == 0:
        return out
    rows = dense.shape[0]
    if rows == 0:
        return out.zero_()
    target = merged(out, 1)
    config = FORWARD.pick(target, target.shape[1], rows)
    _add_row(config, merged(values, 1), offsets, merged(dense, 1), target, levels_of(rows))
    return out


def backward(
    grad: Tensor, offsets: Tensor, need_values: bool, need_dense: bool
) -> tuple[Tensor, Tensor]:
    return (
        filled_only(grad, offsets) if need_values else grad.new_empty(0),
        row_sum.forward(grad, offsets) if need_dense else grad.new_empty(0),
    )


@launchable()
def _add_row(values: Tensor, offsets: Tensor, dense: Tensor, out: Tensor, levels: int) -> None:
    """values, out [T, F], dense [B, F]. A program owns a block of elements and of features."""
    rows = offsets.size(0) - 1
    total = out.size(0)
    width = hl.specialize(out.size(1))
    for elements, features in hl.tile([total, width]):
        low = hl.zeros([], dtype=torch.int64)
        span = low + rows + 1
        for _ in hl.grid(levels):
            low, span = descent(offsets, rows, elements.begin, low, span)
        high = row_within(offsets, rows, elements.end - 1, low)
        row = elements.index * 0 + low
        bound = elements.index * 0 + high
        for _ in hl.grid(bit_length(high - low)):
            row, bound = bisection(offsets, elements.index, row, bound)
        filled = (row < rows)[:, None]
        added = hl.load(dense, [row[:, None], features.index[None, :]], extra_mask=filled)
        element = hl.load(values, [elements, features], extra_mask=filled)
        out[elements, features] = (element.to(torch.float32) + added.to(torch.float32)).to(
            out.dtype
        )
