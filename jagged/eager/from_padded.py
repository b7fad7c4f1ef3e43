"""The cells of a dense tensor [B, N, ...] that rows cover."""

from torch import Tensor

from jagged.eager._rows import SIGNED, pad, unpad


def forward(dense: Tensor, offsets: Tensor, total: int) -> Tensor:
    if dense.dtype in SIGNED:
        return unpad(dense.view(SIGNED[dense.dtype]), offsets, total).view(dense.dtype)
    return unpad(dense, offsets, total)


def backward(grad: Tensor, offsets: Tensor, max_length: int) -> Tensor:
    return pad(grad, offsets, max_length)
