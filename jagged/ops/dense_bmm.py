"""Each row of a jagged tensor times a matrix of its own.

Symbols: B rows, T elements (capacity included), K input and N output features.
"""

from typing import Any

import torch
from torch import Tensor

from jagged import checks
from jagged.ops._library import needs_gradient, operator, record, unit_last_stride


def dense_bmm(
    values: Tensor,
    offsets: Tensor,
    dense: Tensor,
    bias: Tensor | None = None,
    max_length: int | None = None,
) -> Tensor:
    """Multiply every row by its matrix: `out_i = values_i @ dense[i] + bias[i]`.

    Args:
        values: [T, K], float32, bfloat16, float16 (float64 on the CPU); stride(-1) == 1.
        offsets: [B + 1], int32 or int64, on the device of `values`.
        dense: [B, K, N], dtype and device of `values`; stride(-1) == 1.
        bias: [B, N], dtype and device of `values`; stride(-1) == 1; None for 0.
        max_length: rows stop there: elements at or past it give 0 and get gradient 0. None takes
            rows whole.

    Returns:
        [T, N] in the dtype of `values`; 0 past `offsets[-1]`, where nothing is read. An empty row
        has no elements and so no result; its matrix and bias get gradient 0. Accumulated in
        float32 (float64 for float64), deterministic.

    Raises:
        TypeError, ValueError: an argument has a wrong dtype, rank, shape, stride or device, or
            `max_length` is negative.

    Example:
        >>> values, dense = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[[10.0]], [[20.0]]])
        >>> jagged.ops.dense_bmm(values, torch.tensor([0, 2, 3]), dense).tolist()
        [[10.0], [20.0], [60.0]]
    """
    checks.jagged(values, offsets, 2)
    rows = offsets.shape[0] - 1
    checks.operand("dense", dense, "values", values)
    checks.shape("dense", dense, (rows, values.shape[1], None), "[B, K, N]")
    if bias is not None:
        checks.operand("bias", bias, "values", values)
        checks.shape("bias", bias, (rows, dense.shape[2]), "[B, N]")
    checks.optional_length("max_length", max_length)
    if needs_gradient(values, dense, bias):
        return record(_DenseBmm, values, offsets, dense, bias, max_length)
    out: Tensor = _forward(values, offsets, dense, bias, max_length)
    return out


class _DenseBmm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        offsets: Tensor,
        dense: Tensor,
        bias: Tensor | None,
        max_length: int | None,
    ) -> Tensor:
        ctx.save_for_backward(values, offsets, dense)
        ctx.max_length = max_length
        out: Tensor = _forward(values, offsets, dense, bias, max_length)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, offsets, dense = ctx.saved_tensors
        need_values, _, need_dense, need_bias, _ = ctx.needs_input_grad
        grad_values, grad_dense, grad_bias = _backward(
            unit_last_stride(grads[0]),
            values,
            offsets,
            dense,
            need_bias,
            ctx.max_length,
            need_values,
            need_dense,
        )
        return (
            grad_values if need_values else None,
            None,
            grad_dense if need_dense else None,
            grad_bias if need_bias else None,
            None,
        )


@operator(
    "dense_bmm_forward(Tensor values, Tensor offsets, Tensor dense, Tensor? bias,"
    " SymInt? max_length) -> Tensor"
)
def _forward(
    values: Tensor, offsets: Tensor, dense: Tensor, bias: Tensor | None, max_length: int | None
) -> Tensor:
    return values.new_empty(values.shape[0], dense.shape[2])


@operator(
    "dense_bmm_backward(Tensor grad, Tensor values, Tensor offsets, Tensor dense, bool has_bias,"
    " SymInt? max_length, bool need_values, bool need_dense) -> (Tensor, Tensor, Tensor)"
)
def _backward(
    grad: Tensor,
    values: Tensor,
    offsets: Tensor,
    dense: Tensor,
    has_bias: bool,
    max_length: int | None,
    need_values: bool,
    need_dense: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        grad.new_empty(values.shape if need_values else 0),
        grad.new_empty(dense.shape if need_dense else 0),
        grad.new_empty((offsets.shape[0] - 1, dense.shape[2]) if has_bias else 0),
    )
