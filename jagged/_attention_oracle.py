"""What HSTU attention means: a Python loop over rows on dense scores, differentiable by autograd.

Two functions with the arguments of `jagged.ops.hstu_attention`: the float64 oracle, and the same
loop as plain torch in the dtype of the inputs, against which errors are budgeted.
"""

import itertools
import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from jagged.attention import BucketedBias, HSTUMask


def hstu_attention_oracle(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    *,
    max_length: int,
    scale: float | Tensor,
    alpha: float | None = None,
    mask: HSTUMask | None = None,
    num_targets: Tensor | None = None,
    bias: BucketedBias | None = None,
) -> Tensor:
    """[T, H, V] float64: `jagged.ops.hstu_attention`, exactly; 0 in the capacity tail.

    In a row longer than `max_length` only its first `max_length` elements are queries and keys,
    under the mask of the whole row; the others give 0.
    """
    return _attend(
        q, k, v, offsets, max_length, scale, alpha, mask, num_targets, bias, torch.float64
    )


def hstu_attention_plain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    *,
    max_length: int,
    scale: float | Tensor,
    alpha: float | None = None,
    mask: HSTUMask | None = None,
    num_targets: Tensor | None = None,
    bias: BucketedBias | None = None,
) -> Tensor:
    """[T, H, V] in the dtype of v: the same in float32 with P and the result rounded to that dtype.

    The third argument of `assert_accurate`, and of its gradients.
    """
    accumulate = torch.float64 if v.dtype == torch.float64 else torch.float32
    return _attend(
        q, k, v, offsets, max_length, scale, alpha, mask, num_targets, bias, accumulate
    ).to(v.dtype)


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    max_length: int,
    scale: float | Tensor,
    alpha: float | None,
    mask: HSTUMask | None,
    num_targets: Tensor | None,
    bias: BucketedBias | None,
    dtype: torch.dtype,
) -> Tensor:
    if alpha is None:
        alpha = 1 / math.sqrt(max(q.shape[2], 1))
    per_query = torch.as_tensor(scale, dtype=dtype, device=q.device).expand(q.shape[0])
    if bias is not None:
        bias = _in(bias, dtype)
    bounds = offsets.tolist()
    rows = []
    for row, (start, end) in enumerate(itertools.pairwise(bounds)):
        length = end - start
        seen = min(length, max_length)
        span = slice(start, start + seen)
        query, key, value = (x[span].to(dtype).transpose(0, 1) for x in (q, k, v))
        scores = alpha * (query @ key.mT)  # [H, query, key]
        if bias is not None:
            scores = _add_bias(scores, bias, slice(start, end))
        targets = None if num_targets is None else int(num_targets[row])
        keep = (mask or HSTUMask()).keep(length, targets)[:seen, :seen].to(q.device)
        weights = torch.where(keep, functional.silu(scores), 0.0) * per_query[span, None]
        if dtype != torch.float64:
            # The value is rounded, the gradient passes through unrounded.
            weights = weights + (weights.to(v.dtype).to(dtype) - weights).detach()
        rows.append((weights @ value).transpose(0, 1))
        rows.append(value.new_zeros((length - seen, *v.shape[1:])))
    rows.append(torch.zeros((v.shape[0] - bounds[-1], *v.shape[1:]), dtype=dtype, device=v.device))
    return torch.cat(rows)


def _in(bias: BucketedBias, dtype: torch.dtype) -> BucketedBias:
    """The same bias with tables in `dtype`."""
    position, time = bias.position_table, bias.time_table
    return replace(
        bias,
        position_table=None if position is None else position.to(dtype),
        time_table=None if time is None else time.to(dtype),
    )


def _add_bias(scores: Tensor, bias: BucketedBias, span: slice) -> Tensor:
    """`scores` [H, n, n] of the first n elements of the row `span`, and the bias."""
    seen = scores.shape[-1]
    if bias.position_table is not None:
        table = bias.position_table
        position = torch.arange(seen, device=table.device)
        scores = scores + table[(table.shape[0] - 1) // 2 + position - position[:, None]]
    if bias.time_table is not None and bias.timestamps is not None:
        table = bias.time_table
        time = bias.timestamps[span]
        following = torch.cat([time[1:], time[-1:]])[:seen, None]
        # The bucket is defined in float32, as in the published code, whatever `scores` are.
        apart = (following - time[:seen]).abs().clamp(min=1).to(torch.float32)
        level = (apart.log() if bias.bucket == "log" else apart.sqrt()) / bias.divisor
        scores = scores + table[level.clamp(max=table.shape[0] - 1).to(torch.int64)]
    return scores
