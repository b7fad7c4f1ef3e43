"""One entry of a dense tensor [B, ...] added to every element of its row."""

from torch import Tensor

from jagged._rows import row_ids
from jagged.eager._rows import clear, contiguous_copy, spread_rows, sum_rows


def forward(values: Tensor, offsets: Tensor, dense: Tensor) -> Tensor:
    row = row_ids(offsets, values.shape[0])
    out = spread_rows(dense, row)
    out += values
    return clear(out, row == offsets.shape[0] - 1)


def backward(
    grad: Tensor, offsets: Tensor, need_values: bool, need_dense: bool
) -> tuple[Tensor, Tensor]:
    num_rows = offsets.shape[0] - 1
    row = row_ids(offsets, grad.shape[0])
    grad_values, grad_dense = grad.new_empty(0), grad.new_empty(0)
    if need_values:
        grad_values = clear(contiguous_copy(grad), row == num_rows)
    if need_dense:
        grad_dense = sum_rows(grad, row, num_rows).to(grad.dtype)
    return grad_values, grad_dense
