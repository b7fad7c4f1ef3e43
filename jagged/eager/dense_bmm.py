"""Each row times a matrix of its own, plus a bias of its own."""

from torch import Tensor

from jagged.eager._pieces import gather, matrices, pieces, scatter, sum_pieces
from jagged.eager._rows import clear, spread_rows, sum_rows


def forward(
    values: Tensor, offsets: Tensor, dense: Tensor, bias: Tensor | None, max_length: int | None
) -> Tensor:
    total, width = values.shape[0], dense.shape[2]
    if total == 0 or offsets.shape[0] == 1:
        return values.new_zeros(total, width)
    cut = pieces(offsets, total, max_length)
    out = scatter(gather(values, cut).bmm(matrices(dense, cut)), cut)
    if bias is not None:
        out = clear(out.add_(spread_rows(bias, cut.element_row)), cut.outside)
    return out.to(values.dtype)


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
    total, num_rows = values.shape[0], offsets.shape[0] - 1
    grad_values, grad_dense, grad_bias = grad.new_empty(0), grad.new_empty(0), grad.new_empty(0)
    if total == 0 or num_rows == 0:
        return (
            grad.new_zeros(values.shape) if need_values else grad_values,
            grad.new_zeros(dense.shape) if need_dense else grad_dense,
            grad.new_zeros(num_rows, dense.shape[2]) if has_bias else grad_bias,
        )
    cut = pieces(offsets, total, max_length)
    out_grad = gather(grad, cut)
    if need_values:
        product = out_grad.bmm(matrices(dense, cut).transpose(1, 2))
        grad_values = scatter(product, cut).to(values.dtype)
    if need_dense:
        product = gather(values, cut).transpose(1, 2).bmm(out_grad)
        grad_dense = sum_pieces(product, cut, num_rows).to(dense.dtype)
    if has_bias:
        grad_bias = sum_rows(out_grad.sum(1), cut.row, num_rows).to(grad.dtype)
    return grad_values, grad_dense, grad_bias
