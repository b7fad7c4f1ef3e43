"""The product of two jagged tensors over the elements of each row.

Symbols: B rows, T elements (capacity included), M and N features of the two operands.
"""

from typing import Any

import torch
from torch import Tensor

from jagged import checks
from jagged.ops._library import needs_gradient, operator, record, unit_last_stride


def jagged_bmm(x: Tensor, y: Tensor, offsets: Tensor, max_length: int | None = None) -> Tensor:
    """For every row `out[i] = x_i.T @ y_i`, a sum over its elements.

    Args:
        x: [T, M], float32, bfloat16, float16 (float64 on the CPU); stride(-1) == 1.
        y: [T, N], dtype and device of `x`; stride(-1) == 1.
        offsets: [B + 1], int32 or int64, on the device of `x`; the rows of both.
        max_length: rows stop there: elements at or past it are not summed and get gradient 0.
            None takes rows whole.

    Returns:
        [B, M, N] in the dtype of `x`; an empty row gives 0. Accumulated in float32 (float64 for
        float64), deterministic. Elements past `offsets[-1]` are not read and get gradient 0.

    Raises:
        TypeError, ValueError: an argument has a wrong dtype, rank, shape, stride or device, or
            `max_length` is negative.

    Example:
        >>> x, y = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[10.0], [20.0], [30.0]])
        >>> jagged.ops.jagged_bmm(x, y, torch.tensor([0, 2, 2, 3])).tolist()
        [[[50.0]], [[0.0]], [[90.0]]]
    """
    checks.ragged("x", x, 2)
    checks.floating("x", x)
    checks.operand("y", y, "x", x)
    checks.shape("y", y, (x.shape[0], None), "[T, N]")
    checks.offsets(offsets, x, "x")
    checks.optional_length("max_length", max_length)
    if needs_gradient(x, y):
        return record(_JaggedBmm, x, y, offsets, max_length)
    out: Tensor = _forward(x, y, offsets, max_length)
    return out


class _JaggedBmm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, offsets: Tensor, max_length: int | None) -> Tensor:
        ctx.save_for_backward(x, y, offsets)
        ctx.max_length = max_length
        out: Tensor = _forward(x, y, offsets, max_length)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, y, offsets = ctx.saved_tensors
        need_x, need_y, _, _ = ctx.needs_input_grad
        grad_x, grad_y = _backward(
            unit_last_stride(grads[0]), x, y, offsets, ctx.max_length, need_x, need_y
        )
        return grad_x if need_x else None, grad_y if need_y else None, None, None


@operator("jagged_bmm_forward(Tensor x, Tensor y, Tensor offsets, SymInt? max_length) -> Tensor")
def _forward(x: Tensor, y: Tensor, offsets: Tensor, max_length: int | None) -> Tensor:
    return x.new_empty(offsets.shape[0] - 1, x.shape[1], y.shape[1])


@operator(
    "jagged_bmm_backward(Tensor grad, Tensor x, Tensor y, Tensor offsets, SymInt? max_length,"
    " bool need_x, bool need_y) -> (Tensor, Tensor)"
)
def _backward(
    grad: Tensor,
    x: Tensor,
    y: Tensor,
    offsets: Tensor,
    max_length: int | None,
    need_x: bool,
    need_y: bool,
) -> tuple[Tensor, Tensor]:
    return (
        grad.new_empty(x.shape if need_x else 0),
        grad.new_empty(y.shape if need_y else 0),
    )
