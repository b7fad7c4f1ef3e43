"""Softmax along each row, per feature."""

import torch
from torch import Tensor

from jagged.eager._rows import (
    accumulated,
    accumulation_dtype,
    clear,
    contiguous_copy,
    elements,
    max_all_rows,
    sum_all_rows,
)


def forward(values: Tensor, offsets: Tensor, max_length: int | None) -> Tensor:
    num_rows = offsets.shape[0] - 1
    row, _, valid = elements(offsets, values.shape[0], max_length)
    outside = ~valid
    scores = contiguous_copy(values, accumulation_dtype(values.dtype))
    if max_length is not None:
        clear(scores, outside, -torch.inf)  # what is cut off has weight 0 in its row
    scores -= max_all_rows(scores, row, num_rows).index_select(0, row)
    weights = scores.exp_()
    weights /= sum_all_rows(weights, row, num_rows).index_select(0, row)
    return clear(weights, outside).to(values.dtype)


def backward(grad: Tensor, out: Tensor, offsets: Tensor, max_length: int | None) -> Tensor:
    num_rows = offsets.shape[0] - 1
    row, _, valid = elements(offsets, grad.shape[0], max_length)
    outside = ~valid
    weights = accumulated(out)
    # A NaN in the incoming gradient of a cut-off element must not reach its row.
    change = clear(contiguous_copy(grad, weights.dtype), outside)
    inner = sum_all_rows(change * weights, row, num_rows).index_select(0, row)
    change -= inner
    change *= weights
    return clear(change, outside).to(grad.dtype)
