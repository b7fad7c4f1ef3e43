"""Forward of HSTU attention: one program owns a block of queries of one row and head."""

from typing import Any

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels._device import add_product
from jagged.kernels.hstu_attention.bias import key_times, next_times, relative_bias
from jagged.kernels.hstu_attention.blocks import in_32_bits, load_block, store_block
from jagged.kernels.hstu_attention.mask import beyond, keep, key_blocks, target_id
from jagged.kernels.hstu_attention.score import silu
from jagged.tuning.launch import launchable


@launchable(dot=True)
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    table: Tensor | None,
    num_targets: Tensor | None,
    scale_per_query: Tensor | None,
    position_table: Tensor | None,
    time_table: Tensor | None,
    timestamps: Tensor | None,
    out: Tensor,
    slots: int,
    most: int,
    max_length: int,
    alpha: float,
    scale: float,
    window: int,
    contextual: int,
    min_full: int,
    step: float,
    MASK: hl.constexpr,
    BUCKET: hl.constexpr,
    D: hl.constexpr,
    V: hl.constexpr,
    BLOCK_Q: hl.constexpr,
    BLOCK_K: hl.constexpr,
    HELD: hl.constexpr,
    SPARE: hl.constexpr,
) -> None:
    """out [T, H, V] from q, k [T, H, D] and v [T, H, V].

    Program (head, slot) finds its row and block in `table` [slots, 2], or, without one, in the slot
    itself: `most` blocks a row. The last SPARE programs write 0 into the capacity tail. D and V
    are the widths padded to powers of two. With HELD the queries are in registers and not in shared
    memory, which `wgmma` would read again for each block of keys. Of a row longer than `max_length`
    only the first `max_length` elements are queries and keys, under the mask of the whole row; the
    others get 0.
    """
    heads = hl.specialize(q.size(1))
    hl.specialize(q.size(2))
    hl.specialize(v.size(2))
    rows = offsets.size(0) - 1
    total = q.size(0)
    for head, slot in hl.grid([heads, slots + SPARE]):
        if slot < slots:
            if table is None:
                row = slot // most
                block = most - 1 - slot % most
            else:
                row = table[slot, 0]
                block = table[slot, 1]
            start = offsets[row].to(torch.int64)
            length = (offsets[row + 1] - offsets[row]).to(torch.int32)
            first = in_32_bits(length * 0 + block * BLOCK_Q)
            seen = in_32_bits(torch.clamp(length, max=max_length))
            if (first >= 0) & (first < seen):
                # Elements past max_length, of which a row has none as a rule: before the loops,
                # where this costs them no registers.
                rest = torch.where(first + BLOCK_Q < seen, 0, length - seen)
                for surplus in hl.grid((rest + (BLOCK_Q - 1)) // BLOCK_Q):
                    skipped = seen + surplus * BLOCK_Q + hl.arange(BLOCK_Q)
                    nothing = hl.zeros([BLOCK_Q, V], dtype=torch.float32)
                    store_block(out, start + skipped, head, skipped < length, nothing, V)
                limit = target_id(length, num_targets, row, contextual, MASK)
                begin, full, edge, end, skip, jump = key_blocks(
                    first, seen, limit, window, contextual, min_full, MASK, BLOCK_Q, BLOCK_K
                )
                query = first + hl.arange(BLOCK_Q)
                inside = query < seen
                queries = load_block(q, start + query, head, inside, D)
                if HELD:
                    queries = in_registers(queries, D)
                if time_table is not None:
                    query_time = next_times(timestamps, start, query, length)
                else:
                    query_time = None
                acc = hl.zeros([BLOCK_Q, V], dtype=torch.float32)
                half = alpha * 0.5
                # Loops from 0: with a first number of their own they cost 30 registers.
                if "w" in MASK:
                    for lead in hl.grid(full - begin):
                        acc = visit(
                            acc, queries, query, query_time, (begin + lead) * BLOCK_K, k, v,
                            position_table, time_table, timestamps, start, seen, limit, head, half,
                            window, contextual, min_full, step, MASK, BUCKET, D, V, BLOCK_K,
                            True,
                        )  # fmt: skip
                for inner in hl.grid(edge - full):
                    acc = visit(
                        acc, queries, query, query_time, (full + inner) * BLOCK_K, k, v,
                        position_table, time_table, timestamps, start, seen, limit, head, half,
                        window, contextual, min_full, step, MASK, BUCKET, D, V, BLOCK_K, False,
                    )  # fmt: skip
                for last in hl.grid(end - edge):
                    number = beyond(edge + last, skip, jump, "t" in MASK)
                    acc = visit(
                        acc, queries, query, query_time, number * BLOCK_K, k, v, position_table,
                        time_table, timestamps, start, seen, limit, head, half, window,
                        contextual, min_full, step, MASK, BUCKET, D, V, BLOCK_K, True,
                    )  # fmt: skip
                if scale_per_query is None:
                    acc = acc * scale
                else:
                    factor = hl.load(scale_per_query, [start + query], extra_mask=inside)
                    acc = acc * factor.to(torch.float32)[:, None]
                store_block(out, start + query, head, inside, acc, V)
        else:
            past = offsets[rows].to(torch.int64)
            begin_tail = past + (slot - slots) * BLOCK_Q
            turns = (total - begin_tail + (SPARE * BLOCK_Q - 1)) // (SPARE * BLOCK_Q)
            for turn in hl.grid(turns):
                position = begin_tail + turn * (SPARE * BLOCK_Q) + hl.arange(BLOCK_Q)
                zeros = hl.zeros([BLOCK_Q, V], dtype=torch.float32)
                store_block(out, position, head, position < total, zeros, V)


def in_registers(block: Any, D: int) -> Any:
    """The same block as the result of a product, which is how Triton is told to keep it there."""
    line = hl.arange(D)
    one = torch.where(line.unsqueeze(1) == line.unsqueeze(0), 1.0, 0.0).to(block.dtype)
    return hl.dot(block, one).to(block.dtype)


def visit(
    acc: Any,
    queries: Any,
    query: Any,
    query_time: Any,
    first_key: Any,
    k: Any,
    v: Any,
    position_table: Any,
    time_table: Any,
    timestamps: Any,
    start: Any,
    length: Any,
    limit: Any,
    head: int,
    half: float,
    window: int,
    contextual: int,
    min_full: int,
    step: float,
    MASK: str,
    BUCKET: str,
    D: int,
    V: int,
    BLOCK_K: int,
    MASKED: bool,
) -> Any:
    """acc + silu(scores) values for one block of keys; device code, inlined where it is called."""
    key = first_key + hl.arange(BLOCK_K)
    inside = key < length if MASKED else None
    position = start + first_key + hl.arange(BLOCK_K)
    keys = load_block(k, position, head, inside, D)
    values = load_block(v, position, head, inside, V)
    score = hl.dot(queries, keys.T) * half
    if BUCKET:
        key_time = None
        if time_table is not None:
            query_time = query_time.unsqueeze(1)
            key_time = key_times(timestamps, start, key, length).unsqueeze(0)
        score = score + 0.5 * relative_bias(
            query.unsqueeze(1), key.unsqueeze(0), query_time, key_time, position_table, time_table,
            step, BUCKET, MASKED,
        )  # fmt: skip
    if MASKED:
        # Before silu, whose value at 0 is 0: the weights are rounded and packed in pairs.
        kept = keep(query.unsqueeze(1), key.unsqueeze(0), limit, window, contextual, min_full, MASK)
        score = torch.where(kept, score, 0.0)
    weight = silu(score, queries.dtype == torch.float32)
    return add_product(acc, weight.to(v.dtype), values)
