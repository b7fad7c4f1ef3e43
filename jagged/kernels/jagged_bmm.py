"""For each row the product of two jagged tensors over its elements: x_i transposed times y_i.

Symbols: B rows, T elements (capacity included), M and N features.
"""

import helion.language as hl
from torch import Tensor

from jagged.kernels._device import limit_of
from jagged.kernels._elements import empty_like
from jagged.kernels._products import (
    COMBINE,
    MANY_PROGRAMS,
    NARROWEST,
    TIMES_MATRICES,
    TRANSPOSED,
    share_of,
    splits_of,
    tail_of,
    times_matrices,
    transposed_product,
)
from jagged.tuning.configs import ConfigTable
from jagged.tuning.launch import launchable
from jagged.tuning.space import Space, powers

__all__ = ["BOTH", "COMBINE", "TIMES_MATRICES", "TRANSPOSED", "backward", "forward"]

# Block sizes: elements.
BOTH = ConfigTable(
    __file__,
    "_both_gradients",
    [Space(blocks=[powers(16, 128)], warps=(4, 8), stages=(1, 2, 3, 4))],
)
WIDEST_BOTH = 128  # of M and N, so that a program holds all of a matrix


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
    if need_x and need_y and _fit_one_program(grad, x):
        return _both(grad, x, y, offsets, max_length)
    grad_x, grad_y = grad.new_empty(0), grad.new_empty(0)
    if need_x:
        grad_x = times_matrices(y, offsets, grad.transpose(1, 2), None, max_length)
    if need_y:
        grad_y = times_matrices(x, offsets, grad, None, max_length)
    return grad_x, grad_y


def _fit_one_program(grad: Tensor, x: Tensor) -> bool:
    """Whether a program can hold a matrix of `grad` while both gradients of a row are made."""
    return (
        grad.element_size() == 2
        and x.shape[0] > 0
        and grad.shape[0] > 0
        and min(grad.shape[1:]) >= NARROWEST
        and max(grad.shape[1:]) <= WIDEST_BOTH
    )


def _both(
    grad: Tensor, x: Tensor, y: Tensor, offsets: Tensor, max_length: int | None
) -> tuple[Tensor, Tensor]:
    total, rows = x.shape[0], grad.shape[0]
    grad_x = empty_like(x)
    grad_y = empty_like(y)
    config = BOTH.pick(x, max(grad.shape[1:]), rows)
    splits = splits_of(total, rows, MANY_PROGRAMS)
    _both_gradients(config, grad, x, y, offsets, grad_x, grad_y, limit_of(max_length), splits)
    return grad_x, grad_y


@launchable(dot=True)
def _both_gradients(
    grad: Tensor,
    x: Tensor,
    y: Tensor,
    offsets: Tensor,
    grad_x: Tensor,
    grad_y: Tensor,
    limit: int,
    splits: int,
) -> None:
    """grad [B, M, N], x and grad_x [T, M], y and grad_y [T, N].

    A program owns a share of a row and holds its matrix of `grad`, which it reads once. Products
    are transposed, so that any number of elements at once has wgmma.
    """
    rows = offsets.size(0) - 1
    total = x.size(0)
    height = hl.specialize(x.size(1))
    width = hl.specialize(y.size(1))
    for split, row in hl.tile([splits, rows], block_size=[1, 1]):
        first, cut, last = share_of(offsets, row.begin, split.begin, splits, limit)
        if first < cut:
            matrix = grad[row.begin, :, :]
            for tile in hl.tile(first, cut):
                grad_x[tile, :] = hl.dot(matrix, y[tile, :].T).T.to(grad_x.dtype)
                grad_y[tile, :] = hl.dot(matrix.T, x[tile, :].T).T.to(grad_y.dtype)
        for beyond in hl.tile(cut, last, block_size=32):
            grad_x[beyond, :] = hl.zeros([beyond, height], dtype=grad_x.dtype)
            grad_y[beyond, :] = hl.zeros([beyond, width], dtype=grad_y.dtype)
        tail, tail_end = tail_of(
            offsets, rows, total, row.begin * splits + split.begin, rows * splits
        )
        for beyond in hl.tile(tail, tail_end, block_size=32):
            grad_x[beyond, :] = hl.zeros([beyond, height], dtype=grad_x.dtype)
            grad_y[beyond, :] = hl.zeros([beyond, width], dtype=grad_y.dtype)
