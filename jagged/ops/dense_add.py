"""A dense tensor added to a jagged one, place by place; the result is jagged.

Symbols: B rows, T elements (capacity included), N places of a dense row, `...` any trailing
dimensions.
"""

from typing import Any

import torch
from torch import Tensor

from jagged import checks
from jagged.ops._library import needs_gradient, operator, record, unit_last_stride


def dense_add(values: Tensor, offsets: Tensor, dense: Tensor) -> Tensor:
    """Add `dense[i, j]` to element j of row i; elements at or past N stay as they are.

    Args:
        values: [T, ...], float32, bfloat16, float16 (float64 on the CPU); stride(-1) == 1.
        offsets: [B + 1], int32 or int64, on the device of `values`.
        dense: [B, N, ...], dtype and device of `values`; stride(-1) == 1. Nothing is broadcast: one
            entry for a whole row is `row_add`.

    Returns:
        [T, ...] in the dtype of `values`; 0 past `offsets[-1]`, where nothing is read.
        An empty row has no elements and so no result. Cells of `dense` that no element covers get
        gradient 0. Deterministic.

    Raises:
        TypeError, ValueError: an argument has a wrong dtype, rank, shape, stride or device.

    Example:
        >>> values, dense = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[10.0], [20.0]])
        >>> jagged.ops.dense_add(values, torch.tensor([0, 2, 3]), dense)
        tensor([11.,  2., 23.])
    """
    checks.jagged(values, offsets)
    checks.operand("dense", dense, "values", values)
    rows = offsets.shape[0] - 1
    checks.shape("dense", dense, (rows, None, *values.shape[1:]), "[B, N, ...]")
    if needs_gradient(values, dense):
        return record(_DenseAdd, values, offsets, dense)
    out: Tensor = _forward(values, offsets, dense)
    return out


class _DenseAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, offsets: Tensor, dense: Tensor) -> Tensor:
        ctx.save_for_backward(offsets)
        ctx.length = dense.shape[1]
        out: Tensor = _forward(values, offsets, dense)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (offsets,) = ctx.saved_tensors
        need_values, _, need_dense = ctx.needs_input_grad
        grad = unit_last_stride(grads[0])
        grad_values, grad_dense = _backward(grad, offsets, ctx.length, need_values, need_dense)
        return grad_values if need_values else None, None, grad_dense if need_dense else None


@operator("dense_add_forward(Tensor values, Tensor offsets, Tensor dense) -> Tensor")
def _forward(values: Tensor, offsets: Tensor, dense: Tensor) -> Tensor:
    return values.new_empty(values.shape)


@operator(
    "dense_add_backward(Tensor grad, Tensor offsets, SymInt length, bool need_values,"
    " bool need_dense) -> (Tensor, Tensor)"
)
def _backward(
    grad: Tensor, offsets: Tensor, length: int, need_values: bool, need_dense: bool
) -> tuple[Tensor, Tensor]:
    dense_shape = (offsets.shape[0] - 1, length, *grad.shape[1:])
    return (
        grad.new_empty(grad.shape if need_values else 0),
        grad.new_empty(dense_shape if need_dense else 0),
    )
