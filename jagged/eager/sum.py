"""Sum of each row."""

from torch import Tensor

from jagged._rows import row_ids
from jagged.eager._rows import spread_rows, sum_rows


def forward(values: Tensor, offsets: Tensor) -> Tensor:
    row = row_ids(offsets, values.shape[0])
    return sum_rows(values, row, offsets.shape[0] - 1).to(values.dtype)


def backward(grad: Tensor, offsets: Tensor, total: int) -> Tensor:
    return spread_rows(grad, row_ids(offsets, total))
