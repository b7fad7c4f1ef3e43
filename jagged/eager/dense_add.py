"""Dense [B, N, ...] added to the elements at the same places."""

from torch import Tensor

from jagged._rows import row_ids
from jagged.eager._rows import clear, contiguous_copy, elements, pad, take_cells


def forward(values: Tensor, offsets: Tensor, dense: Tensor) -> Tensor:
    where = elements(offsets, values.shape[0], dense.shape[1])
    out = take_cells(dense, where)
    out += values
    return clear(out, where.row == offsets.shape[0] - 1)


def backward(
    grad: Tensor, offsets: Tensor, length: int, need_values: bool, need_dense: bool
) -> tuple[Tensor, Tensor]:
    grad_values, grad_dense = grad.new_empty(0), grad.new_empty(0)
    if need_values:
        outside = row_ids(offsets, grad.shape[0]) == offsets.shape[0] - 1
        grad_values = clear(contiguous_copy(grad), outside)
    if need_dense:
        grad_dense = pad(grad, offsets, length)
    return grad_values, grad_dense
