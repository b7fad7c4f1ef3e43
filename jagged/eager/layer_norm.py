"""Layer norm with one mean and variance a row, over its elements and features."""

import torch
from torch import Tensor

from jagged._rows import row_ids
from jagged.eager._rows import accumulated, clear, contiguous_copy, spread_rows, sum_rows


def forward(
    values: Tensor, offsets: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    num_rows = offsets.shape[0] - 1
    row = row_ids(offsets, values.shape[0])
    outside = row == num_rows
    count = _counts(offsets, values.shape[1])
    wide = accumulated(values)
    mean = sum_rows(wide.sum(1), row, num_rows) / count
    centred = wide - spread_rows(mean, row)[:, None]
    variance = sum_rows(centred.square().sum(1), row, num_rows) / count
    rstd = (variance + eps).rsqrt_()
    out = centred.mul_(spread_rows(rstd, row)[:, None])
    if weight is not None:
        out *= weight
    if bias is not None:
        out += bias
    return clear(out, outside).to(values.dtype), mean, rstd


def backward(
    grad: Tensor,
    values: Tensor,
    offsets: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    num_rows = offsets.shape[0] - 1
    row = row_ids(offsets, values.shape[0])
    outside = row == num_rows
    count = _counts(offsets, values.shape[1])
    scale = spread_rows(rstd, row)[:, None]
    normal = (accumulated(values) - spread_rows(mean, row)[:, None]).mul_(scale)
    normal = clear(normal, outside)
    out_grad = clear(contiguous_copy(grad, normal.dtype), outside)
    kind = grad.dtype if weight is None else weight.dtype
    grad_weight = grad.new_empty(0, dtype=kind)
    grad_bias = grad.new_empty(0, dtype=kind)
    if has_bias:
        grad_bias = out_grad.sum(0).to(kind)
    if weight is not None:
        grad_weight = (out_grad * normal).sum(0).to(kind)
        out_grad *= weight
    along = sum_rows((out_grad * normal).sum(1), row, num_rows) / count
    level = sum_rows(out_grad.sum(1), row, num_rows) / count
    out_grad -= spread_rows(level, row)[:, None]
    out_grad -= normal.mul_(spread_rows(along, row)[:, None])
    out_grad *= scale
    grad_values = clear(out_grad, outside).to(grad.dtype).contiguous()
    return grad_values, grad_weight, grad_bias


def _counts(offsets: Tensor, width: int) -> Tensor:
    """Elements times features of each row [B]; 1 where there is nothing."""
    return (torch.diff(offsets).to(torch.int64) * width).clamp_(min=1)
