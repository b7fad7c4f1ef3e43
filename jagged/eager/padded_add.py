"""Rows, padded with 0, added to a dense tensor [B, N, ...]."""

from torch import Tensor

from jagged.eager._rows import pad, unpad


def forward(values: Tensor, offsets: Tensor, dense: Tensor) -> Tensor:
    return pad(values, offsets, dense.shape[1]).add_(dense)


def backward(grad: Tensor, offsets: Tensor, total: int) -> Tensor:
    return unpad(grad, offsets, total)
