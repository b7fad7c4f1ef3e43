"""The pointwise part of HSTU attention, shared by its kernels: silu and its derivative."""

from typing import Any

import helion.language as hl
import torch

from jagged.kernels._device import exp, reciprocal


def silu(half: Any, EXACT: bool) -> Any:
    """silu(2 * half), float32.

    EXACT is for float32 results. The other form has one special-function operation in place of two,
    tanh.approx, whose error of 2^-11 is below the rounding of the result to bfloat16 or float16.
    """
    if EXACT:
        return 2.0 * half * _sigmoid(2.0 * half)
    return half + half * _tanh(half)


def silu_and_slope(half: Any, EXACT: bool) -> tuple[Any, Any]:
    """silu(2 * half) and its derivative there, sigmoid + silu * (1 - sigmoid)."""
    if EXACT:
        sigmoid = _sigmoid(2.0 * half)
        value = 2.0 * half * sigmoid
    else:
        tanh = _tanh(half)
        sigmoid = 0.5 * tanh + 0.5
        value = half + half * tanh
    return value, sigmoid + value - value * sigmoid


def _sigmoid(x: Any) -> Any:
    """1 / (1 + e to the -x) in five instructions, two of them special functions (error 3 ulp)."""
    return reciprocal(1.0 + exp(-x))


def _tanh(x: Any) -> Any:
    return hl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=r,r", [x], dtype=torch.float32, is_pure=True, pack=1
    )
