"""Softmax along each row.

Symbols: B rows, T elements (capacity included), `...` any trailing dimensions (features).
"""

from typing import Any

import torch
from torch import Tensor

from jagged import checks
from jagged.ops._library import needs_gradient, operator, record, unit_last_stride


def softmax(values: Tensor, offsets: Tensor, max_length: int | None = None) -> Tensor:
    """Softmax over the elements of every row, each feature by itself.

    For every row `x = values[offsets[i]:offsets[i + 1]]`, `out = exp(x - m) / exp(x - m).sum(0)`
    with `m = x.amax(0)`.

    Args:
        values: [T, ...], float32, bfloat16, float16 (float64 on the CPU); stride(-1) == 1.
        offsets: [B + 1], int32 or int64, on the device of `values`.
        max_length: rows stop there: elements at or past it are left out, give 0 and get gradient
            0. None takes rows whole.

    Returns:
        [T, ...] in the dtype of `values`; 0 past `offsets[-1]`, where nothing is read.
        An empty row has no elements and so no result. Computed in float32 (float64 for float64),
        deterministic. A NaN or infinity stays in its own row and feature.

    Raises:
        TypeError, ValueError: an argument has a wrong dtype, rank, stride or device, or
            `max_length` is negative.

    Example:
        >>> values = torch.tensor([0.0, 0.0, 5.0])
        >>> jagged.ops.softmax(values, torch.tensor([0, 2, 2, 3]))
        tensor([0.5000, 0.5000, 1.0000])
    """
    checks.jagged(values, offsets)
    checks.optional_length("max_length", max_length)
    if needs_gradient(values):
        return record(_Softmax, values, offsets, max_length)
    out: Tensor = _forward(values, offsets, max_length)
    return out


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, offsets: Tensor, max_length: int | None) -> Tensor:
        out: Tensor = _forward(values, offsets, max_length)
        ctx.save_for_backward(out, offsets)
        ctx.max_length = max_length
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        out, offsets = ctx.saved_tensors
        grad_values = _backward(unit_last_stride(grads[0]), out, offsets, ctx.max_length)
        return grad_values, None, None


@operator("softmax_forward(Tensor values, Tensor offsets, SymInt? max_length) -> Tensor")
def _forward(values: Tensor, offsets: Tensor, max_length: int | None) -> Tensor:
    return values.new_empty(values.shape)


@operator("softmax_backward(Tensor grad, Tensor out, Tensor offsets, SymInt? max_length) -> Tensor")
def _backward(grad: Tensor, out: Tensor, offsets: Tensor, max_length: int | None) -> Tensor:
    return grad.new_empty(grad.shape)
