"""What the row kernels share; Helion inlines the functions that they call on the device."""

from typing import Any

import helion.language as hl
import torch


def tail_parts(total: int) -> int:
    """Programs, beyond one a row, that write the zeros of the capacity tail of `total` elements.

    The kernel that writes the rows writes the tail, since nobody on the host knows its length.
    """
    return max(1, min(64, total // 1024))


def full_block(width: int) -> int:
    """The tile that holds all features: the next power of two."""
    return 1 << (width - 1).bit_length()


def span(offsets: Any, index: Any, parts: Any, total: Any) -> tuple[Any, Any, Any]:
    """First element, length, and whether it is a row, of each in `index` [0, B + parts).

    Indices from B on are equal parts of the capacity tail; `total` counts its elements too.
    """
    rows = offsets.size(0) - 1
    index = index + hl.zeros([], dtype=torch.int32)
    is_row = index < rows
    start = hl.load(offsets, [torch.where(is_row, index, rows)])
    end = hl.load(offsets, [torch.where(is_row, index + 1, rows)])
    share = (total - start + parts - 1) // parts
    place = start + (index - rows) * share
    left = total - place
    part = torch.where(left < share, left, share)
    length = torch.where(is_row, end - start, torch.where(part > 0, part, 0))
    return torch.where(is_row, start, place), length, is_row


def whole_blocks(length: Any, block: Any) -> Any:
    """Blocks before the last one, which is never empty in a row that is not: it takes the mask."""
    return torch.where(length > 0, (length - 1) // block, 0)


def exp(x: Any) -> Any:
    """e to the x in two instructions (error 2 ulp); `torch.exp` is a precise library call."""
    return hl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;",
        "=r,r",
        [x * 1.4426950408889634],
        dtype=torch.float32,
        is_pure=True,
        pack=1,
    )
