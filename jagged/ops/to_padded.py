"""Rows laid out as a dense tensor.

Symbols: B rows, T elements (capacity included), N places of a dense row, `...` any trailing
dimensions.
"""

from typing import Any

import torch
from torch import Tensor

from jagged import checks
from jagged.ops._library import needs_gradient, operator, record, unit_last_stride


def to_padded(
    values: Tensor, offsets: Tensor, max_length: int, padding_value: float = 0.0
) -> Tensor:
    """Lay every row out in N = `max_length` places, with `padding_value` after its end.

    Args:
        values: [T, ...], float32, bfloat16, float16 (float64 on the CPU), integers or bool;
            stride(-1) == 1.
        offsets: [B + 1], int32 or int64, on the device of `values`.
        max_length: N; of a longer row the first N elements are kept, the rest gets gradient 0.
        padding_value: a whole number for integer values, 0 or 1 for bool.

    Returns:
        [B, N, ...] in the dtype of `values`; an empty row is all padding. A copy of the values,
        deterministic. Elements past `offsets[-1]` are not read and get gradient 0.

    Raises:
        TypeError, ValueError: an argument has a wrong dtype, rank, stride or device, `max_length`
            is negative, or `padding_value` is not a number of the dtype.

    Example:
        >>> values = torch.tensor([1, 2, 3, 4])
        >>> jagged.ops.to_padded(values, torch.tensor([0, 3, 3, 4]), 2, -1)
        tensor([[ 1,  2],
                [-1, -1],
                [ 4, -1]])
    """
    checks.ragged("values", values)
    checks.number("values", values)
    checks.offsets(offsets, values)
    checks.length("max_length", max_length)
    checks.padding_value(padding_value, values)
    padding_value = float(padding_value)
    if needs_gradient(values):
        return record(_ToPadded, values, offsets, max_length, padding_value)
    out: Tensor = _forward(values, offsets, max_length, padding_value)
    return out


class _ToPadded(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, offsets: Tensor, max_length: int, padding_value: float
    ) -> Tensor:
        ctx.save_for_backward(offsets)
        ctx.total = values.shape[0]
        out: Tensor = _forward(values, offsets, max_length, padding_value)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (offsets,) = ctx.saved_tensors
        return _backward(unit_last_stride(grads[0]), offsets, ctx.total), None, None, None


@operator(
    "to_padded_forward(Tensor values, Tensor offsets, SymInt max_length, float padding_value)"
    " -> Tensor"
)
def _forward(values: Tensor, offsets: Tensor, max_length: int, padding_value: float) -> Tensor:
    return values.new_empty((offsets.shape[0] - 1, max_length, *values.shape[1:]))


@operator("to_padded_backward(Tensor grad, Tensor offsets, SymInt total) -> Tensor")
def _backward(grad: Tensor, offsets: Tensor, total: int) -> Tensor:
    return grad.new_empty((total, *grad.shape[2:]))
