"""Padded to jagged."""

from torch import Tensor

from jagged.kernels._copies import CELLS, ELEMENTS, to_cells, to_elements

__all__ = ["CELLS", "ELEMENTS", "backward", "forward"]


def forward(dense: Tensor, offsets: Tensor, total: int) -> Tensor:
    return to_elements(dense, offsets, total)


def backward(grad: Tensor, offsets: Tensor, max_length: int) -> Tensor:
    return to_cells(grad, offsets, max_length)
