"""Jagged to padded."""

from torch import Tensor

from jagged.kernels._copies import CELLS, ELEMENTS, to_cells, to_elements
from jagged.kernels._elements import bits_of

__all__ = ["CELLS", "ELEMENTS", "backward", "forward"]


def forward(values: Tensor, offsets: Tensor, max_length: int, padding_value: float) -> Tensor:
    return to_cells(values, offsets, max_length, bits_of(padding_value, values.dtype))


def backward(grad: Tensor, offsets: Tensor, total: int) -> Tensor:
    return to_elements(grad, offsets, total)
