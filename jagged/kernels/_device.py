"""What the row kernels share; Helion inlines the functions that they call on the device."""

from typing import Any

import helion.language as hl
import torch
from torch import Tensor

LOG2_E = 1.4426950408889634
LOG2_E_LOST = 1.92596298909109e-08  # what LOG2_E loses when it is rounded to float32
LN_2 = 0.6931471805599453
TAIL_BITS = 6
NO_LIMIT = 2**31 - 1  # longer than any row

# What is read twice is to stay in the L1 cache after the first read and to leave it after the
# second. A row in flight should fit there: else the second pass comes from the L2 cache, which is
# what limits these kernels, or, where more is in flight than that holds, from memory.
KEEP, DROP = "evict_last", "evict_first"


def limit_of(max_length: int | None) -> int:
    """`max_length` as the kernels take it: a number of 32 bits."""
    return NO_LIMIT if max_length is None else min(max_length, NO_LIMIT)


def tail_bits(total: int) -> int:
    """The base-2 logarithm of how many programs write the zeros of the capacity tail, beyond the
    one for each row; of `total` elements in all.

    The kernel that writes the rows writes the tail, since the host does not know its length.
    """
    return TAIL_BITS if total >= 1 << 14 else 0


def narrow(*matrices: Tensor) -> bool:
    """Whether 32-bit arithmetic reaches every element: then offsets are cut to it at once, since
    what is computed from 64-bit offsets costs twice the registers and instructions.

    The bound on the elements leaves room for `span`, which looks past the end of the tail.
    """
    for matrix in matrices:
        total = matrix.shape[0]
        if total >= 2**27 or total * matrix.stride(0) >= 2**31:
            return False
    return True


def number(value: Any, is_narrow: bool) -> Any:
    """Device: an offset, a size or an argument in 32 bits if `narrow`, else in 64.

    Sums with a bare argument have 64 bits, and so has every address that is built on them.
    """
    kind = torch.int32 if is_narrow else torch.int64
    return value.to(kind) if isinstance(value, torch.Tensor) else hl.full([], value, dtype=kind)


def full_block(width: int) -> int:
    """The tile that holds all features: the next power of two."""
    return 1 << (width - 1).bit_length()


def span(offsets: Any, index: Any, bits: Any, total: Any, is_narrow: bool) -> tuple[Any, Any, Any]:
    """First element, length, and whether it is a row, of each in `index` [0, B + 2 ** bits).

    Indices from B on are equal parts of the capacity tail; `total` counts its elements too.
    """
    rows = number(offsets.size(0) - 1, is_narrow)
    index = number(index, is_narrow)
    is_row = index < rows
    start = number(hl.load(offsets, [torch.where(is_row, index, rows)]), is_narrow)
    end = number(hl.load(offsets, [torch.where(is_row, index + 1, rows)]), is_narrow)
    tail = number(total, is_narrow) - start
    share = (tail >> number(bits, is_narrow)) + 1
    skipped = torch.where(is_row, 0, index - rows) * share
    left = tail - skipped
    part = torch.where(left < share, left, share)
    length = torch.where(is_row, end - start, torch.where(part > 0, part, 0))
    return start + skipped, length, is_row


def kept_of(length: Any, is_row: Any, limit: Any, is_narrow: bool) -> Any:
    """How many elements of a row count; 0 where it is none."""
    limit = number(limit, is_narrow)
    return torch.where(is_row, torch.where(length < limit, length, limit), 0)


def whole_blocks(length: Any, block: Any) -> Any:
    """Blocks before the last one, which is never empty in a row that is not: it takes the mask."""
    return torch.where(length > 0, (length - 1) // block, 0)


def widen(x: Any) -> Any:
    """Elements in float32: bfloat16 ones by an instruction each, where Triton takes two."""
    if x.dtype != torch.bfloat16:
        return x.to(torch.float32)
    return hl.inline_asm_elementwise(
        "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;",
        "=r,=r,r",
        [x],
        dtype=torch.float32,
        is_pure=True,
        pack=2,
    )


def finite(peak: Any) -> Any:
    """A maximum that is never -inf, so that -inf leaves a weight of 0 and not NaN."""
    lowest = -3.4028234663852886e38  # of float32
    return torch.where(peak > lowest, peak, lowest)


def summand(block: Any, EXACT: bool) -> Any:
    """Elements as they are added up: float64 if EXACT, for float32, else float32.

    Sums of float32 numbers that cancel are then right to the last bit, and the memory is as busy as
    before.
    """
    return block.to(torch.float64) if EXACT else block.to(torch.float32)


def exp(x: Any) -> Any:
    """e to the x in two instructions (error 2 ulp); `torch.exp` is a precise library call."""
    return exp2(x * LOG2_E)


def exp_over(x: Any, fall: Any) -> Any:
    """e to the x over 2 to the `fall`; relative error |x| * 2 ** -24, enough for 16-bit results."""
    return exp2(x * LOG2_E - fall)


def exact_exp(x: Any) -> Any:
    """e to the x, x at most 0, for float32 results: as near as `torch.exp` however small it is.

    The product x * log2(e) is rounded by as much as 2 ** -24 of itself, which for x = -50 is 2e-6
    of the result. What it loses is put right to the first order.
    """
    x = torch.where(x < -1e4, -1e4, x)  # -inf, which has no second part
    power = x * LOG2_E
    lost = fused(x, LOG2_E, -power) + x * LOG2_E_LOST
    result = exp2(power)
    return result + result * (lost * LN_2)


def fused(x: Any, factor: float, addend: Any) -> Any:
    """x * factor + addend, rounded once."""
    return hl.inline_asm_elementwise(
        "fma.rn.f32 $0, $1, $2, $3;",
        "=r,r,r,r",
        [x, torch.full_like(x, factor), addend],
        dtype=torch.float32,
        is_pure=True,
        pack=1,
    )


def add_product(acc: Any, left: Any, right: Any) -> Any:
    """acc + left right, float32.

    Of float32 operands the products of a block are added up before they join the others: one chain
    of additions along a row loses a digit that plain torch keeps. `fused` because Triton makes
    one chain of a product and a plain addition.
    """
    if left.dtype == torch.float32:
        return fused(hl.dot(left, right), 1.0, acc)
    return hl.dot(left, right, acc=acc)


def exp2(x: Any) -> Any:
    """2 to the x in one instruction."""
    return hl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=torch.float32, is_pure=True, pack=1
    )


def reciprocal(x: Any) -> Any:
    """1 / x in one instruction (error 1 ulp); a division takes eight."""
    return hl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=torch.float32, is_pure=True, pack=1
    )


def log2(x: Any) -> Any:
    """Logarithm to the base 2 in one instruction, absolute error 2 ** -22."""
    return hl.inline_asm_elementwise(
        "lg2.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=torch.float32, is_pure=True, pack=1
    )
