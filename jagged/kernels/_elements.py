"""What the kernels that copy between jagged and padded layouts share, on host and device.

Those kernels have one program for a block of outputs, whatever the rows look like: a block of
elements of a jagged output finds its rows in the offsets by bisection, a block of cells of a padded
output by a division. So skewed, short and empty rows cost nothing, and the capacity tail of a
jagged output is zeroed on the way.
"""

import functools
from typing import Any

import helion.language as hl
import torch
from torch import Tensor

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def merged(tensor: Tensor, leading: int) -> Tensor:
    """`tensor` with what follows its first `leading` dimensions as one: [T] or [T, H, D] as [T, F].

    A copy only where the strides of those dimensions do not allow a view.
    """
    if tensor.ndim == leading + 1:
        return tensor
    shape = tensor.shape
    return tensor.reshape(*shape[:leading], shape[leading:].numel())


def as_bits(tensor: Tensor) -> Tensor:
    """`tensor` as integers of its size: kernels that only move data have one form for all."""
    return tensor.view(_BITS[tensor.element_size()])


@functools.lru_cache(maxsize=256)
def bits_of(value: float, dtype: torch.dtype) -> int:
    """The integer that `as_bits` makes of `value` in `dtype`."""
    return int(as_bits(torch.full((1,), value, dtype=dtype, device="cpu")))


def bisection(offsets: Any, index: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Device: one step towards the row of each element of `index`, which lies in low..high.

    After as many steps as B has bits, both are the last row that starts at or before the element:
    the row that holds it, or B for an element of the capacity tail. All elements of a block take
    nearly the same path, so nearly all loads are cache hits.
    """
    middle = (low + high + 1) >> 1
    reached = hl.load(offsets, [middle]) <= index
    return torch.where(reached, middle, low), torch.where(reached, high, middle - 1)
