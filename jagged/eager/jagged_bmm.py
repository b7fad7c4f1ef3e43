"""For each row the product of two jagged tensors over its elements: x_i transposed times y_i."""

from torch import Tensor

from jagged.eager._pieces import gather, matrices, pieces, scatter, sum_pieces


def forward(x: Tensor, y: Tensor, offsets: Tensor, max_length: int | None) -> Tensor:
    num_rows = offsets.shape[0] - 1
    if x.shape[0] == 0 or num_rows == 0:
        return x.new_zeros(num_rows, x.shape[1], y.shape[1])
    cut = pieces(offsets, x.shape[0], max_length)
    product = gather(x, cut).transpose(1, 2).bmm(gather(y, cut))
    return sum_pieces(product, cut, num_rows).to(x.dtype)


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
    if x.shape[0] == 0 or offsets.shape[0] == 1:
        return (
            grad.new_zeros(x.shape) if need_x else grad_x,
            grad.new_zeros(y.shape) if need_y else grad_y,
        )
    cut = pieces(offsets, x.shape[0], max_length)
    per_piece = matrices(grad, cut)
    if need_x:
        grad_x = scatter(gather(y, cut).bmm(per_piece.transpose(1, 2)), cut).to(x.dtype)
    if need_y:
        grad_y = scatter(gather(x, cut).bmm(per_piece), cut).to(y.dtype)
    return grad_x, grad_y
