"""Rows as a dense tensor [B, N, ...]."""

import math

from torch import Tensor

from jagged.eager._rows import SIGNED, pad, unpad


def forward(values: Tensor, offsets: Tensor, max_length: int, padding_value: float) -> Tensor:
    if values.dtype in SIGNED:
        half = 1 << (8 * values.itemsize - 1)
        padding = (math.trunc(padding_value) + half) % (2 * half) - half  # the same bits
        bits = values.view(SIGNED[values.dtype])
        return pad(bits, offsets, max_length, padding).view(values.dtype)
    return pad(values, offsets, max_length, padding_value)


def backward(grad: Tensor, offsets: Tensor, total: int) -> Tensor:
    return unpad(grad, offsets, total)
