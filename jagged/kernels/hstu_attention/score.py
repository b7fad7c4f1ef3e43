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


def silu_and_gradient(half: Any, grad: Any, EXACT: bool) -> tuple[Any, Any]:
    """silu(2 * half), and grad times twice the derivative of silu there.

    The derivative is sigmoid + silu * (1 - sigmoid). Twice it is 1 + tanh + half * (1 - tanh^2),
    which takes the fewest instructions; the callers halve the sum of all.
    """
    if EXACT:
        sigmoid = _sigmoid(2.0 * half)
        value = 2.0 * half * sigmoid
        return value, 2.0 * (grad * (sigmoid + value - value * sigmoid))
    tanh = _tanh(half)
    return half + half * tanh, grad + grad * (tanh + half * (1.0 - tanh * tanh))


def operand(twice: Any, like: Any) -> Any:
    """Twice the gradient of scores in the dtype of `like`, the other operand of a product.

    The gradient itself in float16, which ends at 65504: `last_factor` knows.
    """
    if like.dtype == torch.float16:
        twice = twice * 0.5
    return twice.to(like.dtype)


def last_factor(half: Any, like: Any) -> Any:
    """What a sum of such products is still to be multiplied by; `half` is alpha / 2."""
    if like.dtype == torch.float16:
        return half * 2.0
    return half


def _sigmoid(x: Any) -> Any:
    """1 / (1 + e to the -x) in five instructions, two of them special functions (error 3 ulp)."""
    return reciprocal(1.0 + exp(-x))


def _tanh(x: Any) -> Any:
    return hl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=r,r", [x], dtype=torch.float32, is_pure=True, pack=1
    )
