"""The relative bias inside the kernels: looked up a block at a time, never stored."""

import math
from typing import Any

import helion.language as hl
import torch

from jagged.kernels._device import log2


def bucket_step(bucket: str, divisor: float) -> float:
    """What `bucket_of` takes for a divisor: the buckets per doubling, or the divisor of roots."""
    return math.log(2) / divisor if bucket == "log" else divisor


def bucket_of(next_time: Any, key_time: Any, step: float, buckets: int, BUCKET: str) -> Any:
    """clamp(int(f(max(|next_time - key_time|, 1)) / divisor), 0, buckets), f in float32.

    The logarithm to the base 2, one instruction, in place of some thirty for a natural one and its
    division: its error moves no more than what is within rounding of a bucket's edge. A square root
    can lie on an edge, below which an approximate one or its approximate division would fall.
    """
    distance = torch.clamp(torch.abs((next_time - key_time).to(torch.float32)), min=1.0)
    if BUCKET == "log":
        level = log2(distance) * step
    else:
        root = torch.sqrt(distance)
        level = hl.inline_triton("tl.div_rn({0}, {1})", args=(root, step), output_like=root)
    # `torch.clamp(max=...)` takes two instructions more, so that NaN stays NaN.
    level = hl.inline_triton("tl.minimum({0}, {1})", args=(level, buckets), output_like=level)
    return level.to(torch.int32)


def next_times(timestamps: Any, start: Any, query: Any, length: Any) -> Any:
    """The time of the element after each query, of the last element for that one (and past it)."""
    return hl.load(timestamps, [start + torch.minimum(query + 1, length - 1)])


def key_times(timestamps: Any, start: Any, key: Any, length: Any) -> Any:
    return hl.load(timestamps, [start + torch.minimum(key, length - 1)])


def entries(table: Any, index: Any) -> Any:
    """table[index], float32; the table has stride 1, as the op demands, and the index is in it.

    Float32 by a load that Triton does not see: one that it sees in a loop with products it takes
    through shared memory, entry by entry (616 instructions in the forward's loop, 434 without).
    """
    if table.dtype != torch.float32:
        return hl.load(table, [index]).to(torch.float32)
    return hl.inline_triton(
        "tl.inline_asm_elementwise('ld.global.nc.f32 $0, [$1];', '=f,l', "
        "[({0} + {1}).to(tl.int64)], dtype=tl.float32, is_pure=True, pack=1)",
        args=(table, index.to(torch.int32)),
        output_like=index.to(torch.float32),
    )


def relative_bias(
    query: Any,
    key: Any,
    next_time: Any,
    key_time: Any,
    position_table: Any,
    time_table: Any,
    step: float,
    BUCKET: str,
    MASKED: bool,
) -> Any:
    """position_table[N - 1 + key - query] + time_table[bucket], float32; shapes broadcast.

    The bias of queries past the row counts for nothing, but its index may be below the table's
    first entry; MASKED: keys may be past their queries, and the index beyond the last entry.
    """
    bias = (query - key).to(torch.float32) * 0.0
    if position_table is not None:
        size = position_table.size(0)
        index = torch.clamp(size // 2 + key - query, min=0)
        if MASKED:
            index = torch.clamp(index, max=size - 1)
        bias = entries(position_table, index)
    if time_table is not None:
        bucket = bucket_of(next_time, key_time, step, time_table.size(0) - 1, BUCKET)
        bias = bias + entries(time_table, bucket)
    return bias
