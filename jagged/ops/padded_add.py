"""A dense tensor added to a jagged one, place by place; the result is dense.

Symbols: B rows, T elements (capacity included), N places of a dense row, `...` any trailing
dimensions.
"""

from typing import Any

import torch
from torch import Tensor

from jagged import checks
from jagged.ops._library import needs_gradient, operator, record, unit_last_stride


def padded_add(values: Tensor, offsets: Tensor, dense: Tensor) -> Tensor:
    """Add element j of row i to `dense[i, j]`; cells without an element stay as they are.

    Args:
        values: [T, ...], float32, bfloat16, float16 (float64 on the CPU); stride(-1) == 1.
        offsets: [B + 1], int32 or int64, on the device of `values`.
        dense: [B, N, ...], dtype and device of `values`; stride(-1) == 1.

    Returns:
        [B, N, ...] in the dtype of `values`; an empty row gives its row of `dense`. Elements at
        or past N are dropped and get gradient 0, as those past `offsets[-1]`, which are not read.
        Deterministic.

    Raises:
        TypeError, ValueError: an argument has a wrong dtype, rank, shape, stride or device.

    Example:
        >>> values = torch.tensor([1.0, 2.0, 3.0])
        >>> dense = torch.tensor([[10.0, 20.0], [30.0, 40.0]])
        >>> jagged.ops.padded_add(values, torch.tensor([0, 2, 3]), dense)
        tensor([[11., 22.],
                [33., 40.]])
    """
    checks.jagged(values, offsets)
    checks.operand("dense", dense, "values", values)
    rows = offsets.shape[0] - 1
    checks.shape("dense", dense, (rows, None, *values.shape[1:]), "[B, N, ...]")
    if needs_gradient(values, dense):
        return record(_PaddedAdd, values, offsets, dense)
    out: Tensor = _forward(values, offsets, dense)
    return out


class _PaddedAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, offsets: Tensor, dense: Tensor) -> Tensor:
        ctx.save_for_backward(offsets)
        ctx.total = values.shape[0]
        out: Tensor = _forward(values, offsets, dense)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (offsets,) = ctx.saved_tensors
        need_values, _, need_dense = ctx.needs_input_grad
        grad_values = None
        if need_values:
            grad_values = _backward(unit_last_stride(grads[0]), offsets, ctx.total)
        return grad_values, None, grads[0] if need_dense else None


@operator("padded_add_forward(Tensor values, Tensor offsets, Tensor dense) -> Tensor")
def _forward(values: Tensor, offsets: Tensor, dense: Tensor) -> Tensor:
    return values.new_empty(dense.shape)


@operator("padded_add_backward(Tensor grad, Tensor offsets, SymInt total) -> Tensor")
def _backward(grad: Tensor, offsets: Tensor, total: int) -> Tensor:
    return grad.new_empty((total, *grad.shape[2:]))
