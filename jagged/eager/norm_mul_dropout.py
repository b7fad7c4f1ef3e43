"""Layer norm times a gate, with dropout."""

from collections.abc import Sequence

import torch
from torch import Tensor

from jagged.eager._rows import accumulation_dtype, clear, contiguous_copy, in_tail


def forward(
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
    by_head = values.ndim == 3
    values, u = _by_head(values), _by_head(u)
    total, heads, width = values.shape
    wide = accumulation_dtype(values.dtype)
    count = 3 if concat else 1
    out = values.new_empty(total, count * heads * width)
    if out.numel() == 0:
        nothing = values.new_zeros(total, heads, dtype=wide)
        return out, nothing, nothing.clone()
    plain = values.to(wide)
    normed, mean, rstd = torch.native_layer_norm(plain, [width], None, None, eps)
    gate = contiguous_copy(u, wide)
    if silu:
        torch.nn.functional.silu(gate, inplace=True)
    if weight is not None:
        normed.mul_(_per_feature(weight, by_head, wide))
    if bias is not None:
        normed.add_(_per_feature(bias, by_head, wide))
    normed.mul_(gate)
    parts = [gate, plain, normed] if concat else [normed]
    if seed is not None:
        parts = _drop(parts, seed, dropout)
    for place, part in enumerate(parts):
        out.view(total, count, heads, width)[:, place] = part
    mean, rstd = mean.squeeze(2), rstd.squeeze(2)
    if offsets is not None:
        outside = in_tail(offsets, total)
        out, mean, rstd = clear(out, outside), clear(mean, outside), clear(rstd, outside)
    return out, mean, rstd


def backward(
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
    shape, by_head, kind = values.shape, values.ndim == 3, values.dtype
    values, u = _by_head(values), _by_head(u)
    total, heads, width = values.shape
    wide = mean.dtype
    count = 3 if concat else 1
    grads = list(grad.to(wide).reshape(total, count, heads, width).unbind(1))
    gate, normal = contiguous_copy(u, wide), contiguous_copy(values, wide)
    normal.sub_(mean[:, :, None]).mul_(rstd[:, :, None])
    if seed is not None:
        grads = _drop(grads, seed, dropout)
    if offsets is not None:
        outside = in_tail(offsets, total)
        gate, normal = clear(gate, outside), clear(normal, outside)
        if seed is None:  # else they are copies already
            grads = [contiguous_copy(part) for part in grads]
        grads = [clear(part, outside) for part in grads]
    normed = normal
    if weight is not None:
        normed = normed * _per_feature(weight, by_head, wide)
    if bias is not None:
        normed = normed + _per_feature(bias, by_head, wide)
    grad_u = grads[-1] * normed
    if concat:
        grad_u += grads[0]
    opened = gate
    if silu:
        share = gate.sigmoid()
        opened = gate * share
        grad_u *= share + opened * (1 - share)
    slope = grads[-1] * opened
    grad_bias = _parameter_sum(slope, bias, by_head) if has_bias else None
    grad_weight = _parameter_sum(slope * normal, weight, by_head)
    if weight is not None:
        slope *= _per_feature(weight, by_head, wide)
    divisor = max(width, 1)
    along = (slope * normal).sum(2, keepdim=True).div_(divisor)
    level = slope.sum(2, keepdim=True).div_(divisor)
    grad_values = (slope - level).sub_(normal.mul_(along)).mul_(rstd[:, :, None])
    if concat:
        grad_values += grads[1]
    nothing = values.new_empty(0, dtype=kind if weight is None else weight.dtype)
    return (
        grad_values.to(kind).view(shape),
        grad_u.to(kind).view(shape),
        nothing if grad_weight is None else grad_weight,
        nothing.clone() if grad_bias is None else grad_bias,
    )


def _by_head(values: Tensor) -> Tensor:
    """[T, D] as one head."""
    return values if values.ndim == 3 else values.unsqueeze(1)


def _per_feature(parameter: Tensor, by_head: bool, dtype: torch.dtype) -> Tensor:
    """[D], or one number a head [H], so that it broadcasts over [T, H, V]."""
    return parameter.to(dtype).unsqueeze(1 if by_head else 0)


def _parameter_sum(change: Tensor, parameter: Tensor | None, by_head: bool) -> Tensor | None:
    """The gradient of weight or bias, of `change` [T, H, V]."""
    if parameter is None:
        return None
    return change.sum((0, 2) if by_head else (0, 1)).to(parameter.dtype)


def _drop(parts: Sequence[Tensor], seed: Tensor, dropout: float) -> list[Tensor]:
    """Dropout of parts [T, H, V]: one hash an element and column, a number of it for each part."""
    total, heads, width = parts[0].shape
    threshold = min(round(dropout * 2**32), 2**32 - 1) - 2**31
    number = _numbers(seed, total, heads * width).view(total, heads, width)
    dropped = []
    for part in parts:
        dropped.append((part * (number >= threshold)).mul_(1 / (1 - dropout)))
        number *= 747796405
    return dropped


def _numbers(seed: Tensor, total: int, width: int) -> Tensor:
    """[total, width] int32 of the seed and the place: `jagged.ops.norm_mul_dropout` states how.

    Products of int32 wrap, and `>>` keeps the sign, hence the `&`.
    """
    element = torch.arange(total, dtype=torch.int32, device=seed.device)
    pair = torch.arange((width + 1) // 2, dtype=torch.int32, device=seed.device)
    first = _mix(element.bitwise_xor_(seed.to(torch.int32)))
    second = _mix(first ^ (seed >> 32).to(torch.int32))
    even = _mix(first[:, None] + pair.mul_(-1640531527), second[:, None])
    odd = even * 747796405 * 747796405 * 747796405
    return torch.stack([even, odd], 2).flatten(1)[:, :width].contiguous()


def _mix(x: Tensor, halfway: Tensor | None = None) -> Tensor:
    """A bijection in which every bit depends on all, with a key halfway where one is given."""
    x = (x ^ ((x >> 16) & 0xFFFF)).mul_(2146121005)
    if halfway is not None:
        x ^= halfway
    x ^= (x >> 15) & 0x1FFFF
    x *= -2073254261
    return x.bitwise_xor_((x >> 16) & 0xFFFF)
