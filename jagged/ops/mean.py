"""Mean of each row.

Symbols: B rows, T elements (capacity included), `...` any trailing dimensions.
"""

from typing import Any

import torch
from torch import Tensor

from jagged import checks
from jagged.ops._library import needs_gradient, operator, record, unit_last_stride


def mean(values: Tensor, offsets: Tensor) -> Tensor:
    """Average the elements of every row: its sum divided by its number of elements.

    Args:
        values: [T, ...], float32, bfloat16, float16 (float64 on the CPU); stride(-1) == 1.
        offsets: [B + 1], int32 or int64, on the device of `values`.

    Returns:
        [B, ...] in the dtype of `values`; an empty row gives 0, not NaN. Accumulated in float32
        (in float64 for float32 and float64 values), in a fixed order: deterministic. Elements past
        `offsets[-1]` are not read and get gradient 0.

    Raises:
        TypeError, ValueError: an argument has a wrong dtype, rank, stride or device.

    Example:
        >>> values = torch.tensor([1.0, 2.0, 3.0, 4.0])
        >>> jagged.ops.mean(values, torch.tensor([0, 3, 3, 4]))
        tensor([2., 0., 4.])
    """
    checks.jagged(values, offsets)
    if needs_gradient(values):
        return record(_Mean, values, offsets)
    out: Tensor = _forward(values, offsets)
    return out


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, offsets: Tensor) -> Tensor:
        ctx.save_for_backward(offsets)
        ctx.total = values.shape[0]
        out: Tensor = _forward(values, offsets)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (offsets,) = ctx.saved_tensors
        return _backward(unit_last_stride(grads[0]), offsets, ctx.total), None


@operator("mean_forward(Tensor values, Tensor offsets) -> Tensor")
def _forward(values: Tensor, offsets: Tensor) -> Tensor:
    return values.new_empty((offsets.shape[0] - 1, *values.shape[1:]))


@operator("mean_backward(Tensor grad, Tensor offsets, SymInt total) -> Tensor")
def _backward(grad: Tensor, offsets: Tensor, total: int) -> Tensor:
    return grad.new_empty((total, *grad.shape[1:]))
