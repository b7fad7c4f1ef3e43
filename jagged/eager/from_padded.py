"""The cells of a dense tensor [B, N, ...] that rows cover."""

from torch import Tensor

from jagged.eager._rows import pad, unpad


def forward(dense: Tensor, offsets: Tensor, total: int) -> Tensor:
    return unpad(dense, offsets, total)


def backward(grad: Tensor, offsets: Tensor, max_length: int) -> Tensor:
    return pad(grad, offsets, max_length)
