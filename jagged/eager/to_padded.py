"""Rows as a dense tensor [B, N, ...]."""

from torch import Tensor

from jagged.eager._rows import pad, unpad


def forward(values: Tensor, offsets: Tensor, max_length: int, padding_value: float) -> Tensor:
    return pad(values, offsets, max_length, padding_value)


def backward(grad: Tensor, offsets: Tensor, total: int) -> Tensor:
    return unpad(grad, offsets, total)
