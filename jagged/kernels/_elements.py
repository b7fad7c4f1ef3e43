"""What the kernels that copy between jagged and padded layouts share, on host and device.

Those kernels have one program for a block of outputs, whatever the rows look like. A block of
elements of a jagged output looks for the rows of its first and last element in the offsets, then
for those of all elements by bisection between them; a block of cells of a padded output divides.
So skewed, short and empty rows cost nothing, and the capacity tail of a jagged output is zeroed on
the way. `dense_add` says what that gains over `hl.jagged_tile`.

The two loops of that search are written out in each kernel that has it: Helion finds device loops
in the body of a kernel alone, not in a function that the body calls.
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


def empty_like(tensor: Tensor) -> Tensor:
    """Uninitialised, contiguous; costs the host half of `torch.empty(tensor.shape, ...)`."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def as_bits(tensor: Tensor) -> Tensor:
    """`tensor` as integers of its size: kernels that only move data have one form for all."""
    return tensor.view(_BITS[tensor.element_size()])


@functools.lru_cache(maxsize=256)
def bits_of(value: float, dtype: torch.dtype) -> int:
    """The integer that `as_bits` makes of `value` in `dtype`."""
    return int(as_bits(torch.full((1,), value, dtype=dtype, device="cpu")))


def levels_of(rows: int) -> int:
    """Steps of `descent` that find one of `rows` rows, or the capacity tail behind them."""
    return -(-rows.bit_length() // 5)


def descent(offsets: Any, rows: Any, index: Any, low: Any, span: Any) -> tuple[Any, Any]:
    """Device: one step towards the row of one element, among the `span` rows from `low` on.

    It looks at 32 rows at once, so that `levels_of` steps, from 0 and B + 1 on, are 5 times fewer
    than those of a bisection, each of which waits for its load.
    """
    step = (span + 31) >> 5
    return low + (_started(offsets, rows, index, low, step) - 1) * step, step


def row_within(offsets: Any, rows: Any, index: Any, low: Any) -> Any:
    """Device: the row of an element that is not before row `low`; B where it is 32 rows away."""
    count = _started(offsets, rows, index, low, 1)
    return torch.where(count < 32, low + count - 1, rows)


def _started(offsets: Any, rows: Any, index: Any, low: Any, step: Any) -> Any:
    """Device: how many of 32 rows, every `step`-th from `low` on, start at or before an element."""
    row = low + hl.arange(32) * step
    started = (row <= rows) & (hl.load(offsets, [torch.clamp(row, max=rows)]) <= index)
    return torch.where(started, 1.0, 0.0).sum(0).to(torch.int64)


def bit_length(number: Any) -> Any:
    """Device: bits of a number of at least 0, or one more if it is large."""
    exponent = number.to(torch.float32).view(torch.int32) >> 23
    return torch.clamp(exponent - 126, min=0)


def bisection(offsets: Any, index: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Device: one step towards the row of each element of `index`, which lies in low..high.

    After as many steps as B has bits, both are the last row that starts at or before the element:
    the row that holds it, or B for an element of the capacity tail. All elements of a block take
    nearly the same path, so nearly all loads are cache hits.
    """
    middle = (low + high + 1) >> 1
    reached = hl.load(offsets, [middle]) <= index
    return torch.where(reached, middle, low), torch.where(reached, high, middle - 1)
