"""Layer norm of each row: one mean and one variance over its elements and features.

Symbols: B rows, T elements (capacity included), D features.
"""

from typing import Any

import torch
from torch import Tensor

from jagged import checks
from jagged.ops._library import needs_gradient, operator, record, unit_last_stride
from jagged.ops._norm import recorded_weight


def layer_norm(
    values: Tensor,
    offsets: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise every row to mean 0 and variance 1 over all its elements and features.

    For every row `x = values[offsets[i]:offsets[i + 1]]` ([n, D]),
    `out = (x - x.mean()) / sqrt(x.var(correction=0) + eps) * weight + bias`. For the norm of each
    element by itself see `token_layer_norm`.

    Args:
        values: [T, D], float32, bfloat16, float16 (float64 on the CPU); stride(-1) == 1.
        offsets: [B + 1], int32 or int64, on the device of `values`.
        weight: [D], in the dtype of `values`, or float32 beside 16-bit values; None for 1.
        bias: [D], in the dtype of `weight` where there is one; None for 0.
        eps: added to the variance, not negative.

    Returns:
        [T, D] in the dtype of `values`; 0 past `offsets[-1]`, where nothing is read. An empty row
        has no elements and so no result. Mean and variance in two passes in float32 (float64 for
        float64). Deterministic; gradients of weight and bias are sums in a fixed order.

    Raises:
        TypeError, ValueError: an argument has a wrong dtype, rank, shape, stride or device, or
            `eps` is negative or not finite.

    Example:
        >>> values = torch.tensor([[1.0], [3.0], [7.0]])
        >>> jagged.ops.layer_norm(values, torch.tensor([0, 2, 2, 3]), eps=0.0)[:2].tolist()
        [[-1.0], [1.0]]
    """
    checks.jagged(values, offsets, 2)
    checks.norm_parameters(values, weight, bias, eps)
    if needs_gradient(values, weight, bias):
        weight = recorded_weight(values, weight, bias)
        return record(_LayerNorm, values, offsets, weight, bias, eps)
    out: Tensor = _forward(values, offsets, weight, bias, eps)[0]
    return out


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        offsets: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
    ) -> Tensor:
        out: Tensor
        out, mean, rstd = _forward(values, offsets, weight, bias, eps)
        ctx.save_for_backward(values, offsets, mean, rstd, weight)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, offsets, mean, rstd, weight = ctx.saved_tensors
        need_values, _, need_weight, need_bias, _ = ctx.needs_input_grad
        grad_values, grad_weight, grad_bias = _backward(
            unit_last_stride(grads[0]), values, offsets, mean, rstd, weight, need_bias
        )
        return (
            grad_values if need_values else None,
            None,
            grad_weight if need_weight else None,
            grad_bias if need_bias else None,
            None,
        )


@operator(
    "layer_norm_forward(Tensor values, Tensor offsets, Tensor? weight, Tensor? bias, float eps)"
    " -> (Tensor, Tensor, Tensor)"
)
def _forward(
    values: Tensor, offsets: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    wide = torch.float64 if values.dtype == torch.float64 else torch.float32
    mean = values.new_empty(offsets.shape[0] - 1, dtype=wide)
    return values.new_empty(values.shape), mean, torch.empty_like(mean)


@operator(
    "layer_norm_backward(Tensor grad, Tensor values, Tensor offsets, Tensor mean, Tensor rstd,"
    " Tensor? weight, bool has_bias) -> (Tensor, Tensor, Tensor)"
)
def _backward(
    grad: Tensor,
    values: Tensor,
    offsets: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    width = values.shape[1]
    kind = values.dtype if weight is None else weight.dtype
    grad_weight = values.new_empty(0 if weight is None else width, dtype=kind)
    grad_bias = values.new_empty(width if has_bias else 0, dtype=kind)
    return values.new_empty(values.shape), grad_weight, grad_bias
