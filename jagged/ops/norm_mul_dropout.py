"""Layer norm times a gate, with dropout: what stands between HSTU's attention and its output.

Symbols: B rows, T elements (capacity included), D features, or H heads of V features.
"""

from typing import Any

import torch
from torch import Tensor

from jagged import checks
from jagged.ops._library import needs_gradient, operator, record, unit_last_stride
from jagged.ops._norm import recorded_weight


def norm_mul_dropout(
    values: Tensor,
    u: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    silu: bool = False,
    concat: bool = False,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Normalise every element over its features, multiply by a gate, and drop some of the result.

    `out[t] = dropout(g * LN(x))` with `x = values[t]`, `g = u[t]` or `silu(u[t])`, and `LN` as in
    `token_layer_norm`; with `concat`, `out[t] = dropout([g, x, g * LN(x)])`. It is what an HSTU
    layer does between attention and output projection (Zhai et al., arXiv 2402.17152, eq. 3;
    generative-recommenders calls it `norm_mul_dropout`), in one pass over memory each way: only
    the means and deviations are kept for the backward pass.

    Dropout needs no memory either. Whether column c of part j (0, or 0 to 2 with `concat`) of
    element t stays is a hash of the seed and of this place, the same on every device::

        a = mix(t ^ seed % 2^32)        b = mix(a ^ seed >> 32)
        n = mix(a + (c >> 1) * 0x9E3779B9, b) * 0x2C9277B5^(j + 3 (c & 1))
        kept where n, a signed number, is at least (dropout - 1/2) * 2^32

    all modulo 2^32. `mix(x, b)` is `x ^= x >> 16; x *= 0x7FEB352D; x ^= b; x ^= x >> 15;
    x *= 0x846CA68B; x ^= x >> 16` for an unsigned x, and b is 0 where none is given.

    Args:
        values: [T, D], or [T, H, V] to normalise each head by itself; float32, bfloat16, float16
            (float64 on the CPU); stride(-1) == 1.
        u: the gate, in shape and dtype of `values`; may be a view of a projection.
        weight: [D], or one number a head [H]; in the dtype of `values`, or float32 beside 16-bit
            values; None for 1.
        bias: as `weight`, and in its dtype where there is one; None for 0.
        eps: added to the variance, not negative.
        silu: the gate is `silu(u)`.
        concat: the result is gate, values and their product beside each other.
        dropout: the probability p with which a number becomes 0, in [0, 1); the others are
            multiplied by 1 / (1 - p). As in torch it is a product with 0: what was infinite or NaN
            and is dropped is NaN.
        seed: [1] int64 on the device of `values`: the same seed drops the same numbers. None to
            draw one from the device's generator, so that `torch.manual_seed` decides, nothing waits
            for the device, and a CUDA graph draws another at each replay. Without dropout it is
            not used and none is drawn.
        offsets: [B + 1], int32 or int64, on the device of `values`. Given, elements past
            `offsets[-1]` are not read, hold 0 and get gradient 0; without them every element is
            data.

    Returns:
        [T, D] or [T, 3 D], D being H V for heads, in the dtype of `values`; an empty row has no
        elements and so no result. Computed in float32 (float64 for float64), rounded once.
        Deterministic for a given seed; gradients of weight and bias are sums in a fixed order.

    Raises:
        TypeError, ValueError: an argument has a wrong dtype, rank, shape, stride or device, `eps`
            is negative or not finite, or `dropout` is not in [0, 1).

    Example:
        >>> values, u = torch.tensor([[1.0, 3.0], [5.0, 5.0]]), torch.tensor([[2.0, 3.0]] * 2)
        >>> jagged.ops.norm_mul_dropout(values, u, concat=True)
        tensor([[ 2.0000,  3.0000,  1.0000,  3.0000, -2.0000,  3.0000],
                [ 2.0000,  3.0000,  5.0000,  5.0000,  0.0000,  0.0000]])
    """
    checks.ragged("values", values)
    if values.ndim not in (2, 3):
        raise ValueError(
            f"values must have 2 or 3 dimensions, [T, D] or [T, H, V], got shape "
            f"{checks.shape_of(values)}: reshape it first"
        )
    checks.floating("values", values)
    checks.operand("u", u, "values", values)
    checks.shape("u", u, tuple(values.shape), "that of values")
    if offsets is not None:
        checks.offsets(offsets, values)
    by_head = values.ndim == 3
    checks.norm_parameters(values, weight, bias, eps, by_head=by_head)
    checks.probability("dropout", dropout)
    if seed is not None:
        checks.seed(seed, values)
    if dropout == 0:
        seed = None
    elif seed is None:
        seed = torch.randint(2**63 - 1, (1,), device=values.device)
    options = eps, silu, concat, float(dropout), seed, offsets
    if needs_gradient(values, u, weight, bias):
        weight = recorded_weight(values, weight, bias)
        return record(_NormMulDropout, values, u, weight, bias, *options)
    out: Tensor = _forward(values, u, weight, bias, *options)[0]
    return out


class _NormMulDropout(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        u: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        silu: bool,
        concat: bool,
        dropout: float,
        seed: Tensor | None,
        offsets: Tensor | None,
    ) -> Tensor:
        out: Tensor
        out, mean, rstd = _forward(
            values, u, weight, bias, eps, silu, concat, dropout, seed, offsets
        )
        ctx.save_for_backward(values, u, mean, rstd, weight, bias, seed, offsets)
        ctx.options = silu, concat, dropout
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, u, mean, rstd, weight, bias, seed, offsets = ctx.saved_tensors
        need_values, need_u, need_weight, need_bias = ctx.needs_input_grad[:4]
        grad_values, grad_u, grad_weight, grad_bias = _backward(
            unit_last_stride(grads[0]),
            values,
            u,
            mean,
            rstd,
            weight,
            bias,
            need_bias,
            *ctx.options,
            seed,
            offsets,
        )
        return (
            grad_values if need_values else None,
            grad_u if need_u else None,
            grad_weight if need_weight else None,
            grad_bias if need_bias else None,
            *(None,) * 6,
        )


@operator(
    "norm_mul_dropout_forward(Tensor values, Tensor u, Tensor? weight, Tensor? bias, float eps,"
    " bool silu, bool concat, float dropout, Tensor? seed, Tensor? offsets)"
    " -> (Tensor, Tensor, Tensor)"
)
def _forward(
    values: Tensor,
    u: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    silu: bool,
    concat: bool,
    dropout: float,
    seed: Tensor | None,
    offsets: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    total, *trailing = values.shape
    heads, width = trailing if len(trailing) == 2 else (1, *trailing)
    wide = torch.float64 if values.dtype == torch.float64 else torch.float32
    out = values.new_empty(total, (3 if concat else 1) * heads * width)
    mean = values.new_empty(total, heads, dtype=wide)
    return out, mean, torch.empty_like(mean)


@operator(
    "norm_mul_dropout_backward(Tensor grad, Tensor values, Tensor u, Tensor mean, Tensor rstd,"
    " Tensor? weight, Tensor? bias, bool has_bias, bool silu, bool concat, float dropout,"
    " Tensor? seed, Tensor? offsets) -> (Tensor, Tensor, Tensor, Tensor)"
)
def _backward(
    grad: Tensor,
    values: Tensor,
    u: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    has_bias: bool,
    silu: bool,
    concat: bool,
    dropout: float,
    seed: Tensor | None,
    offsets: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    kind = values.dtype if weight is None else weight.dtype
    nothing = values.new_empty(0, dtype=kind)
    grad_bias = torch.empty_like(bias) if bias is not None and has_bias else nothing.clone()
    return (
        values.new_empty(values.shape),
        values.new_empty(values.shape),
        nothing if weight is None else torch.empty_like(weight),
        grad_bias,
    )
