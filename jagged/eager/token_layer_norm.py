"""Layer norm of each element over its features."""

import torch
from torch import Tensor

from jagged.eager._rows import accumulation_dtype, clear, contiguous_copy, in_tail


def forward(
    values: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    offsets: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    total, width = values.shape
    wide = accumulation_dtype(values.dtype)
    if width == 0:
        nothing = values.new_zeros(total, dtype=wide)
        return values.new_empty(total, 0), nothing, nothing.clone()
    out, mean, rstd = torch.native_layer_norm(
        values.to(wide), [width], _as(weight, wide), _as(bias, wide), eps
    )
    mean, rstd = mean.reshape(total), rstd.reshape(total)
    if offsets is not None:
        outside = in_tail(offsets, total)
        out, mean, rstd = clear(out, outside), clear(mean, outside), clear(rstd, outside)
    return out.to(values.dtype), mean, rstd


def backward(
    grad: Tensor,
    values: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    has_bias: bool,
    offsets: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    total, width = values.shape
    kind = grad.dtype if weight is None else weight.dtype
    wide_grad = grad.to(mean.dtype)
    normal = contiguous_copy(values, mean.dtype).sub_(mean[:, None]).mul_(rstd[:, None])
    if offsets is not None:
        outside = in_tail(offsets, total)
        wide_grad = clear(contiguous_copy(grad, mean.dtype), outside)
        clear(normal, outside)
    grad_bias = wide_grad.sum(0) if has_bias else wide_grad.new_empty(0)
    grad_weight = wide_grad.new_empty(0)
    if weight is not None:
        grad_weight = (wide_grad * normal).sum(0)
        wide_grad = wide_grad * weight
    divisor = max(width, 1)
    along = (wide_grad * normal).sum(1, keepdim=True).div_(divisor)
    level = wide_grad.sum(1, keepdim=True).div_(divisor)
    grad_values = (wide_grad - level).sub_(normal.mul_(along)).mul_(rstd[:, None])
    return (
        grad_values.to(grad.dtype).contiguous(),
        grad_weight.to(kind),
        grad_bias.to(kind),
    )


def _as(parameter: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if parameter is None else parameter.to(dtype)
