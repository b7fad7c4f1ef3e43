"""The rows of a dense tensor as jagged values.

Symbols: B rows, N places of a dense row, `...` any trailing dimensions.
"""

from typing import Any

import torch
from torch import Tensor

from jagged import checks
from jagged.ops._library import needs_gradient, operator, record, unit_last_stride


def from_padded(dense: Tensor, offsets: Tensor, total: int) -> Tensor:
    """Take the first `offsets[i + 1] - offsets[i]` places of every dense row: undoes `to_padded`.

    Args:
        dense: [B, N, ...], float32, bfloat16, float16 (float64 on the CPU), integers or bool;
            stride(-1) == 1.
        offsets: [B + 1], int32 or int64, on the device of `dense`.
        total: the number of elements of the result, at least `offsets[-1]`. An argument because
            the host does not know `offsets[-1]`.

    Returns:
        [total, ...] in the dtype of `dense`; 0 for elements at or past N of a row that is longer,
        and past `offsets[-1]`. An empty row takes nothing. A copy of the cells, deterministic.
        Cells that no element covers are not read and get gradient 0.

    Raises:
        TypeError, ValueError: an argument has a wrong dtype, rank, shape, stride or device, or
            `total` is negative.

    Example:
        >>> dense = torch.tensor([[1, 2], [3, 4], [5, 6]])
        >>> jagged.ops.from_padded(dense, torch.tensor([0, 2, 2, 3]), 3)
        tensor([1, 2, 5])
    """
    checks.padded("dense", dense)
    checks.number("dense", dense)
    checks.offsets(offsets, dense, "dense")
    checks.rows("dense", dense, offsets)
    checks.length("total", total)
    if needs_gradient(dense):
        return record(_FromPadded, dense, offsets, total)
    out: Tensor = _forward(dense, offsets, total)
    return out


class _FromPadded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dense: Tensor, offsets: Tensor, total: int) -> Tensor:
        ctx.save_for_backward(offsets)
        ctx.length = dense.shape[1]
        out: Tensor = _forward(dense, offsets, total)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (offsets,) = ctx.saved_tensors
        return _backward(unit_last_stride(grads[0]), offsets, ctx.length), None, None


@operator("from_padded_forward(Tensor dense, Tensor offsets, SymInt total) -> Tensor")
def _forward(dense: Tensor, offsets: Tensor, total: int) -> Tensor:
    return dense.new_empty((total, *dense.shape[2:]))


@operator("from_padded_backward(Tensor grad, Tensor offsets, SymInt max_length) -> Tensor")
def _backward(grad: Tensor, offsets: Tensor, max_length: int) -> Tensor:
    return grad.new_empty((offsets.shape[0] - 1, max_length, *grad.shape[1:]))
