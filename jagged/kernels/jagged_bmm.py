"""For each row the product of two jagged tensors over its elements: x_i transposed times y_i."""

from torch import Tensor

from jagged.kernels._products import (
    COMBINE,
    TIMES_MATRICES,
    TRANSPOSED,
    times_matrices,
    transposed_product,
)

__all__ = ["COMBINE", "TIMES_MATRICES", "TRANSPOSED", "backward", "forward"]


def forward(x: Tensor, y: Tensor, offsets: Tensor, max_length: int | None) -> Tensor:
    return transposed_product(x, y, offsets, max_length)[0]


def backward(
    grad: Tensor,
    x: Tensor,
    y: Tensor,
    offsets: Tensor,
    max_length: int | None,
    need_x: bool,
    need_y: bool,
) -> tuple[Tensor, Tensor]:
    grad_x, grad_y = grad.new_empty(0), grad.new_empty(0)
    if need_x:
        grad_x = times_matrices(y, offsets, grad.transpose(1, 2), None, max_length)
    if need_y:
        grad_y = times_matrices(x, offsets, grad, None, max_length)
    return grad_x, grad_y
