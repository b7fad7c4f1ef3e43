"""The relative bias inside the kernels: looked up a block at a time, never stored."""

import helion.language as hl
import torch
from torch import Tensor


def bucket_of(
    next_time: Tensor, key_time: Tensor, divisor: float, buckets: int, BUCKET: str
) -> Tensor:
    """clamp(int(f(max(|next_time - key_time|, 1)) / divisor), 0, buckets), f in float32."""
    distance = torch.clamp(torch.abs(next_time - key_time).to(torch.float32), min=1.0)
    width = torch.log(distance) if BUCKET == "log" else torch.sqrt(distance)
    return torch.clamp((width / divisor).to(torch.int32), min=0, max=buckets)


def next_times(timestamps: Tensor, start: Tensor, query: Tensor, length: Tensor) -> Tensor:
    """The time of the element after each query, of the last element for that one (and past it)."""
    return hl.load(timestamps, [start + torch.minimum(query + 1, length - 1)])


def key_times(timestamps: Tensor, start: Tensor, key: Tensor, length: Tensor) -> Tensor:
    return hl.load(timestamps, [start + torch.minimum(key, length - 1)])


def relative_bias(
    query: Tensor,
    key: Tensor,
    next_time: Tensor | None,
    key_time: Tensor | None,
    position_table: Tensor | None,
    time_table: Tensor | None,
    divisor: float,
    BUCKET: str,
) -> Tensor:
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
