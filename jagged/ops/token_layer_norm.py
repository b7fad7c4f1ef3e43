"""Layer norm of each element over its features.

Symbols: B rows, T elements (capacity included), D features.
"""

from typing import Any

import torch
from torch import Tensor

from jagged import checks
from jagged.ops._library import needs_gradient, operator, record, unit_last_stride
from jagged.ops._norm import recorded_weight


def token_layer_norm(
    values: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    offsets: Tensor | None = None,
) -> Tensor:
    """Normalise every element to mean 0 and variance 1 over its features.

    `out[t] = (x - x.mean()) / sqrt(x.var(correction=0) + eps) * weight + bias` with
    `x = values[t]`: what `torch.nn.LayerNorm(D)` computes. Rows play no part; for one mean and
    variance a row see `layer_norm`.

    Args:
        values: [T, D], float32, bfloat16, float16 (float64 on the CPU); stride(-1) == 1.
        weight: [D], in the dtype of `values`, or float32 beside 16-bit values; None for 1.
        bias: [D], in the dtype of `weight` where there is one; None for 0.
        eps: added to the variance, not negative.
        offsets: [B + 1], int32 or int64, on the device of `values`. Given, elements past
            `offsets[-1]` are not read, hold 0 and get gradient 0; without them every element is
            data.

    Returns:
        [T, D] in the dtype of `values`; an empty row has no elements and so no result. Computed in
        float32 (float64 for float64).
        Deterministic; gradients of weight and bias are sums in a fixed order.

    Raises:
        TypeError, ValueError: an argument has a wrong dtype, rank, shape, stride or device, or
            `eps` is negative or not finite.

    Example:
        >>> jagged.ops.token_layer_norm(torch.tensor([[1.0, 3.0], [5.0, 5.0]]))
        tensor([[-1.0000,  1.0000],
                [ 0.0000,  0.0000]])
    """
    checks.ragged("values", values, 2)
    checks.floating("values", values)
    if offsets is not None:
        checks.offsets(offsets, values)
    checks.norm_parameters(values, weight, bias, eps)
    if needs_gradient(values, weight, bias):
        weight = recorded_weight(values, weight, bias)
        return record(_TokenLayerNorm, values, weight, bias, eps, offsets)
    out: Tensor = _forward(values, weight, bias, eps, offsets)[0]
    return out


class _TokenLayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        offsets: Tensor | None,
    ) -> Tensor:
        out: Tensor
        out, mean, rstd = _forward(values, weight, bias, eps, offsets)
        ctx.save_for_backward(values, mean, rstd, weight, offsets)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, mean, rstd, weight, offsets = ctx.saved_tensors
        need_values, need_weight, need_bias, _, _ = ctx.needs_input_grad
        grad_values, grad_weight, grad_bias = _backward(
            unit_last_stride(grads[0]), values, mean, rstd, weight, need_bias, offsets
        )
        return (
            grad_values if need_values else None,
            grad_weight if need_weight else None,
            grad_bias if need_bias else None,
            None,
            None,
        )


@operator(
    "token_layer_norm_forward(Tensor values, Tensor? weight, Tensor? bias, float eps,"
    " Tensor? offsets) -> (Tensor, Tensor, Tensor)"
)
def _forward(
    values: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    offsets: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    wide = torch.float64 if values.dtype == torch.float64 else torch.float32
    mean = values.new_empty(values.shape[0], dtype=wide)
    return values.new_empty(values.shape), mean, torch.empty_like(mean)


@operator(
    "token_layer_norm_backward(Tensor grad, Tensor values, Tensor mean, Tensor rstd,"
    " Tensor? weight, bool has_bias, Tensor? offsets) -> (Tensor, Tensor, Tensor)"
)
def _backward(
    grad: Tensor,
    values: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    has_bias: bool,
    offsets: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    width = values.shape[1]
    kind = values.dtype if weight is None else weight.dtype
    grad_weight = values.new_empty(0 if weight is None else width, dtype=kind)
    grad_bias = values.new_empty(width if has_bias else 0, dtype=kind)
    return values.new_empty(values.shape), grad_weight, grad_bias
