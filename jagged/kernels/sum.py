"""Sum of each row."""

from torch import Tensor

from jagged.kernels._rows import BACKWARD, FORWARD, SPLIT_LENGTH, reduce_rows, spread_rows

__all__ = ["BACKWARD", "FORWARD", "SPLIT_LENGTH", "backward", "forward"]


def forward(values: Tensor, offsets: Tensor) -> Tensor:
    return reduce_rows(values, offsets, FORWARD, mean=False)


def backward(grad: Tensor, offsets: Tensor, total: int) -> Tensor:
    return spread_rows(grad, offsets, total, BACKWARD, mean=False)
