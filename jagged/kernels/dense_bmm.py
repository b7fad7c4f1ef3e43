"""Each row times a matrix of its own, plus a bias of its own.

Symbols: B rows, T elements (capacity included), K and N features.
"""

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels._device import limit_of
from jagged.kernels._products import (
    COMBINE,
    FEW_PROGRAMS,
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
# Of K and N: the least for both products to have wgmma, and the most for a matrix and its gradient
# to fit one program.
NARROWEST_BOTH, WIDEST_BOTH = 64, 128


def forward(
    values: Tensor, offsets: Tensor, dense: Tensor, bias: Tensor | None, max_length: int | None
) -> Tensor:
    return times_matrices(values, offsets, dense, bias, max_length)


def backward(
    grad: Tensor,
    values: Tensor,
    offsets: Tensor,
    dense: Tensor,
    has_bias: bool,
    max_length: int | None,
    need_values: bool,
    need_dense: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    if need_values and need_dense and _fit_one_program(grad, dense):
        return _both(grad, values, offsets, dense, has_bias, max_length)
    grad_values, grad_dense, grad_bias = grad.new_empty(0), grad.new_empty(0), grad.new_empty(0)
    if need_values:
        grad_values = times_matrices(grad, offsets, dense.transpose(1, 2), None, max_length)
    if need_dense:
        grad_dense, grad_bias = transposed_product(values, grad, offsets, max_length, has_bias)
    elif has_bias:
        # The sums come with a product, here of the fewest lines, which nobody wants.
        grad_bias = transposed_product(grad[:, :NARROWEST], grad, offsets, max_length, True)[1]
    return grad_values, grad_dense, grad_bias


def _fit_one_program(grad: Tensor, dense: Tensor) -> bool:
    """Whether one program a row can give the gradients of values and of the matrix at once."""
    rows, inner, width = dense.shape
    return (
        grad.element_size() == 2
        and grad.shape[0] > 0
        and rows > 0
        and min(inner, width) >= NARROWEST_BOTH
        and max(inner, width) <= WIDEST_BOTH
        and splits_of(grad.shape[0], rows, FEW_PROGRAMS) == 1
    )


def _both(
    grad: Tensor,
    values: Tensor,
    offsets: Tensor,
    dense: Tensor,
    has_bias: bool,
    max_length: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    rows, inner, width = dense.shape
    grad_values = torch.empty(values.shape, dtype=grad.dtype, device=grad.device)
    grad_dense = torch.empty(dense.shape, dtype=grad.dtype, device=grad.device)
    grad_bias = torch.empty((rows, width) if has_bias else 0, dtype=grad.dtype, device=grad.device)
    _both_gradients(
        BOTH.pick(grad, max(inner, width), rows),
        grad,
        values,
        offsets,
        dense,
        grad_values,
        grad_dense,
        grad_bias if has_bias else None,
        limit_of(max_length),
    )
    return grad_values, grad_dense, grad_bias


@launchable(dot=True)
def _both_gradients(
    grad: Tensor,
    values: Tensor,
    offsets: Tensor,
    dense: Tensor,
    grad_values: Tensor,
    grad_dense: Tensor,
    grad_bias: Tensor | None,
    limit: int,
) -> None:
    """grad [T, N], values and grad_values [T, K], dense and grad_dense [B, K, N], grad_bias [B, N].

    A program owns a row, and reads its gradient once for the gradients of values and matrix.

    What a pipelined loop loads must serve nothing but `wgmma`: Triton 3.6 gives a load with another
    use as well a buffer too few, and the next load overwrites what an unfinished `wgmma` reads
    (wrong by 1e-1 on an H200). So the first product is transposed, which has `wgmma` for any number
    of elements, and the sums have a loop of their own.
    """
    rows = offsets.size(0) - 1
    total = grad.size(0)
    inner = hl.specialize(values.size(1))
    width = hl.specialize(grad.size(1))
    for row in hl.tile(rows, block_size=1):
        first, cut, last = share_of(offsets, row.begin, 0, 1, limit)
        product = hl.zeros([inner, width], dtype=torch.float32)
        matrix = dense[row.begin, :, :]
        for tile in hl.tile(first, cut):
            right = grad[tile, :]
            grad_values[tile, :] = hl.dot(matrix, right.T).T.to(grad_values.dtype)
            product = hl.dot(values[tile, :].T, right, acc=product)
        grad_dense[row.begin, :, :] = product.to(grad_dense.dtype)
        if grad_bias is not None:
            sums = hl.zeros([width], dtype=torch.float32)
            for some in hl.tile(first, cut, block_size=32):
                sums = sums + grad[some, :].to(torch.float32).sum(0)
            grad_bias[row.begin, :] = sums.to(grad_bias.dtype)
        for beyond in hl.tile(cut, last, block_size=32):
            grad_values[beyond, :] = hl.zeros([beyond, inner], dtype=grad_values.dtype)
        tail, tail_end = tail_of(offsets, rows, total, row.begin, rows)
        for beyond in hl.tile(tail, tail_end, block_size=32):
            grad_values[beyond, :] = hl.zeros([beyond, inner], dtype=grad_values.dtype)
