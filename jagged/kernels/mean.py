"""Mean of each row; 0 for an empty one. The kernels and configurations are those of the sum."""

from torch import Tensor

from jagged.kernels._rows import BACKWARD, FORWARD, reduce_rows, spread_rows

__all__ = ["BACKWARD", "FORWARD", "backward", "forward"]


def forward(values: Tensor, offsets: Tensor) -> Tensor:
    return reduce_rows(values, offsets, FORWARD, mean=True)


def backward(grad: Tensor, offsets: Tensor, total: int) -> Tensor:
    return spread_rows(grad, offsets, total, BACKWARD, mean=True)
