"""The relative bias inside the kernels: looked up a block at a time, never stored."""

from typing import Any

import helion.language as hl
import torch


def bucket_of(next_time: Any, key_time: Any, divisor: float, buckets: int, BUCKET: str) -> Any:
    """clamp(int(f(max(|next_time - key_time|, 1)) / divisor), 0, buckets), f in float32.

    The division is a rounded one: a square root on a bucket's edge must not fall below it, which
    the approximate one that `/` compiles to would allow.
    """
    distance = torch.clamp(torch.abs(next_time - key_time).to(torch.float32), min=1.0)
    width = torch.log(distance) if BUCKET == "log" else torch.sqrt(distance)
    level = hl.inline_triton("tl.div_rn({0}, {1})", args=(width, divisor), output_like=width)
    return torch.clamp(level, max=buckets).to(torch.int32)


def next_times(timestamps: Any, start: Any, query: Any, length: Any) -> Any:
    """The time of the element after each query, of the last element for that one (and past it)."""
    return hl.load(timestamps, [start + torch.minimum(query + 1, length - 1)])


def key_times(timestamps: Any, start: Any, key: Any, length: Any) -> Any:
    return hl.load(timestamps, [start + torch.minimum(key, length - 1)])


def relative_bias(
    query: Any,
    key: Any,
    next_time: Any,
    key_time: Any,
    position_table: Any,
    time_table: Any,
    divisor: float,
    BUCKET: str,
) -> Any:
    """position_table[N - 1 + key - query] + time_table[bucket], float32; shapes broadcast."""
    bias = (query - key).to(torch.float32) * 0.0
    if position_table is not None:
        size = position_table.size(0)
        index = torch.clamp(size // 2 + key - query, min=0, max=size - 1)
        bias = hl.load(position_table, [index]).to(torch.float32)
    if time_table is not None:
        bucket = bucket_of(next_time, key_time, divisor, time_table.size(0) - 1, BUCKET)
        bias = bias + hl.load(time_table, [bucket]).to(torch.float32)
    return bias
