"""Mean of each row; 0 for an empty one."""

import torch
from torch import Tensor

from jagged._rows import row_ids
from jagged.eager._rows import accumulated, over_trailing, spread_rows, sum_rows


def forward(values: Tensor, offsets: Tensor) -> Tensor:
    total = sum_rows(values, row_ids(offsets, values.shape[0]), offsets.shape[0] - 1)
    return (total / _counts(offsets, total)).to(values.dtype)


def backward(grad: Tensor, offsets: Tensor, total: int) -> Tensor:
    share = (accumulated(grad) / _counts(offsets, grad)).to(grad.dtype)
    return spread_rows(share, row_ids(offsets, total))


def _counts(offsets: Tensor, like: Tensor) -> Tensor:
    """Row lengths as a divisor of `like` [B, ...]; 1 for an empty row, whose sum is 0."""
    return over_trailing(torch.diff(offsets).clamp_(min=1), like)
