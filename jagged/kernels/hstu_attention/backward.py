"""Backward of HSTU attention: one kernel for the gradient of q, one for those of k and v.

No atomics: a program owns a block of queries and visits its keys, or a block of keys and visits its
queries. The scores are computed in both, seven products in place of five.
"""

from typing import Any

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels._device import add_product
from jagged.kernels.hstu_attention.bias import key_times, next_times, relative_bias
from jagged.kernels.hstu_attention.blocks import load_block, store_block
from jagged.kernels.hstu_attention.mask import (
    beyond,
    from_context,
    keep,
    key_blocks,
    query_blocks,
    target_id,
)
from jagged.kernels.hstu_attention.score import last_factor, operand, silu_and_gradient
from jagged.tuning.launch import launchable


@launchable(dot=True)
def attend_dq(
    grad: Tensor,
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
    dq: Tensor,
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
    SPARE: hl.constexpr,
) -> None:
    """dq [T, H, D] = alpha * dS k. Programs and arguments as in `forward.attend`."""
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
            first = length * 0 + block * BLOCK_Q
            seen = torch.clamp(length, max=max_length)
            if (first >= 0) & (first < seen):
                # Elements past max_length, of which a row has none as a rule: before the loops,
                # where this costs them no registers.
                rest = torch.where(first + BLOCK_Q < seen, 0, length - seen)
                for surplus in hl.grid((rest + (BLOCK_Q - 1)) // BLOCK_Q):
                    skipped = seen + surplus * BLOCK_Q + hl.arange(BLOCK_Q)
                    nothing = hl.zeros([BLOCK_Q, D], dtype=torch.float32)
                    store_block(dq, start + skipped, head, skipped < length, nothing, D)
                limit = target_id(length, num_targets, row, contextual, MASK)
                begin, full, edge, end, skip, jump = key_blocks(
                    first, seen, limit, window, contextual, min_full, MASK, BLOCK_Q, BLOCK_K
                )
                query = first + hl.arange(BLOCK_Q)
                inside = query < seen
                queries = load_block(q, start + query, head, inside, D)
                grads = load_block(grad, start + query, head, inside, V)
                if time_table is not None:
                    query_time = next_times(timestamps, start, query, length)
                else:
                    query_time = None
                acc = hl.zeros([BLOCK_Q, D], dtype=torch.float32)
                half = alpha * 0.5
                # Loops from 0: with a first number of their own they cost 30 registers.
                if "w" in MASK:
                    for lead in hl.grid(full - begin):
                        acc = visit_keys(
                            acc, queries, grads, query, query_time, (begin + lead) * BLOCK_K, k, v,
                            position_table, time_table, timestamps, start, seen, limit, head,
                            half, window, contextual, min_full, step, MASK, BUCKET, D, V,
                            BLOCK_K, True,
                        )  # fmt: skip
                for inner in hl.grid(edge - full):
                    acc = visit_keys(
                        acc, queries, grads, query, query_time, (full + inner) * BLOCK_K, k, v,
                        position_table, time_table, timestamps, start, seen, limit, head,
                        half, window, contextual, min_full, step, MASK, BUCKET, D, V,
                        BLOCK_K, False,
                    )  # fmt: skip
                for last in hl.grid(end - edge):
                    number = beyond(edge + last, skip, jump, "t" in MASK)
                    acc = visit_keys(
                        acc, queries, grads, query, query_time, number * BLOCK_K, k, v,
                        position_table, time_table, timestamps, start, seen, limit, head,
                        half, window, contextual, min_full, step, MASK, BUCKET, D, V,
                        BLOCK_K, True,
                    )  # fmt: skip
                if scale_per_query is None:
                    acc = acc * (last_factor(half, k) * scale)
                else:
                    factor = hl.load(scale_per_query, [start + query], extra_mask=inside)
                    acc = acc * (last_factor(half, k) * factor.to(torch.float32))[:, None]
                store_block(dq, start + query, head, inside, acc, D)
        else:
            past = offsets[rows].to(torch.int64)
            begin_tail = past + (slot - slots) * BLOCK_Q
            turns = (total - begin_tail + (SPARE * BLOCK_Q - 1)) // (SPARE * BLOCK_Q)
            for turn in hl.grid(turns):
                position = begin_tail + turn * (SPARE * BLOCK_Q) + hl.arange(BLOCK_Q)
                zeros = hl.zeros([BLOCK_Q, D], dtype=torch.float32)
                store_block(dq, position, head, position < total, zeros, D)


def visit_keys(
    acc: Any,
    queries: Any,
    grads: Any,
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
    """acc + 2 dS keys for one block of keys; device code, inlined where it is called."""
    key = first_key + hl.arange(BLOCK_K)
    position = start + first_key + hl.arange(BLOCK_K)
    inside = key < length if MASKED else None
    keys = load_block(k, position, head, inside, D)
    values = load_block(v, position, head, inside, V)
    score = hl.dot(queries, keys.T) * half
    weight_grad = hl.dot(grads, values.T)
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
        kept = keep(query.unsqueeze(1), key.unsqueeze(0), limit, window, contextual, min_full, MASK)
        score = torch.where(kept, score, 0.0)
        weight_grad = torch.where(kept, weight_grad, 0.0)
    _value, twice = silu_and_gradient(score, weight_grad, queries.dtype == torch.float32)
    return add_product(acc, operand(twice, keys), keys)


@launchable(dot=True)
def attend_dkv(
    grad: Tensor,
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
    dk: Tensor,
    dv: Tensor,
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
    SPARE: hl.constexpr,
) -> None:
    """dk [T, H, D] = alpha * dSᵀ q and dv [T, H, V] = Pᵀ grad.

    One program owns a block of keys of one row and head, the row's first keys first: they are seen
    by most queries. `table` lists a row's blocks in the other order.
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
                block = slot % most
            else:
                row = table[slot, 0]
                block = table[slot, 1]
            start = offsets[row].to(torch.int64)
            length = (offsets[row + 1] - offsets[row]).to(torch.int32)
            if table is None:
                first = length * 0 + block * BLOCK_K
            else:
                count = torch.clamp((length + (BLOCK_K - 1)) // BLOCK_K, max=most)
                first = (count - 1 - block) * BLOCK_K
                first = torch.where(block >= 0, first, -1)
            seen = torch.clamp(length, max=max_length)
            if (first >= 0) & (first < seen):
                # Elements past max_length, of which a row has none as a rule: before the loops,
                # where this costs them no registers.
                rest = torch.where(first + BLOCK_K < seen, 0, length - seen)
                for surplus in hl.grid((rest + (BLOCK_K - 1)) // BLOCK_K):
                    skipped = seen + surplus * BLOCK_K + hl.arange(BLOCK_K)
                    nothing = hl.zeros([BLOCK_K, D], dtype=torch.float32)
                    store_block(dk, start + skipped, head, skipped < length, nothing, D)
                    nothing_v = hl.zeros([BLOCK_K, V], dtype=torch.float32)
                    store_block(dv, start + skipped, head, skipped < length, nothing_v, V)
                limit = target_id(length, num_targets, row, contextual, MASK)
                context, full, edge, end, skip, jump = query_blocks(
                    first, seen, limit, window, contextual, min_full, MASK, BLOCK_Q, BLOCK_K
                )
                diagonal = first // BLOCK_Q
                key = first + hl.arange(BLOCK_K)
                inside = key < seen
                keys = load_block(k, start + key, head, inside, D)
                values = load_block(v, start + key, head, inside, V)
                if time_table is not None:
                    key_time = key_times(timestamps, start, key, length)
                else:
                    key_time = None
                dk_acc = hl.zeros([BLOCK_K, D], dtype=torch.float32)
                dv_acc = hl.zeros([BLOCK_K, V], dtype=torch.float32)
                half = alpha * 0.5
                for lead in hl.grid(context + (full - diagonal)):
                    number = from_context(lead, context, diagonal, "c" in MASK)
                    dk_acc, dv_acc = visit_queries(
                        dk_acc, dv_acc, keys, values, key, key_time, number * BLOCK_Q, q, grad,
                        scale_per_query, position_table, time_table, timestamps, start, length,
                        seen, limit, head, half, window, contextual, min_full, step, MASK,
                        BUCKET, D, V, BLOCK_Q, True, True,
                    )  # fmt: skip
                for inner in hl.grid(edge - full):
                    dk_acc, dv_acc = visit_queries(
                        dk_acc, dv_acc, keys, values, key, key_time, (full + inner) * BLOCK_Q, q,
                        grad, scale_per_query, position_table, time_table, timestamps, start,
                        length, seen, limit, head, half, window, contextual, min_full, step,
                        MASK, BUCKET, D, V, BLOCK_Q, False, False,
                    )  # fmt: skip
                for last in hl.grid(end - edge):
                    number = beyond(edge + last, skip, jump, "f" in MASK)
                    dk_acc, dv_acc = visit_queries(
                        dk_acc, dv_acc, keys, values, key, key_time, number * BLOCK_Q, q, grad,
                        scale_per_query, position_table, time_table, timestamps, start, length,
                        seen, limit, head, half, window, contextual, min_full, step, MASK,
                        BUCKET, D, V, BLOCK_Q, True, MASK != "",
                    )  # fmt: skip
                if scale_per_query is None:
                    dk_acc = dk_acc * (last_factor(half, q) * scale)
                    dv_acc = dv_acc * scale
                else:
                    dk_acc = dk_acc * last_factor(half, q)
                store_block(dk, start + key, head, inside, dk_acc, D)
                store_block(dv, start + key, head, inside, dv_acc, V)
        else:
            past = offsets[rows].to(torch.int64)
            begin_tail = past + (slot - slots) * BLOCK_K
            turns = (total - begin_tail + (SPARE * BLOCK_K - 1)) // (SPARE * BLOCK_K)
            for turn in hl.grid(turns):
                position = begin_tail + turn * (SPARE * BLOCK_K) + hl.arange(BLOCK_K)
                zeros = hl.zeros([BLOCK_K, D], dtype=torch.float32)
                store_block(dk, position, head, position < total, zeros, D)
                zeros_v = hl.zeros([BLOCK_K, V], dtype=torch.float32)
                store_block(dv, position, head, position < total, zeros_v, V)


def visit_queries(
    dk_acc: Any,
    dv_acc: Any,
    keys: Any,
    values: Any,
    key: Any,
    key_time: Any,
    first_query: Any,
    q: Any,
    grad: Any,
    scale_per_query: Any,
    position_table: Any,
    time_table: Any,
    timestamps: Any,
    start: Any,
    length: Any,
    seen: Any,
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
    BLOCK_Q: int,
    PARTIAL: bool,
    MASKED: bool,
) -> tuple[Any, Any]:
    """The sums of Pᵀ grad and 2 dSᵀ q after one block of queries; device code, inlined.

    PARTIAL: the block may reach past the row. Queries there are 0 and add nothing.
    """
    query = first_query + hl.arange(BLOCK_Q)
    position = start + first_query + hl.arange(BLOCK_Q)
    inside = query < seen if PARTIAL else None
    queries = load_block(q, position, head, inside, D)
    grads = load_block(grad, position, head, inside, V)
    score = hl.dot(keys, queries.T) * half
    weight_grad = hl.dot(values, grads.T)
    if BUCKET:
        query_time = None
        if time_table is not None:
            query_time = next_times(timestamps, start, query, length).unsqueeze(0)
            key_time = key_time.unsqueeze(1)
        score = score + 0.5 * relative_bias(
            query.unsqueeze(0), key.unsqueeze(1), query_time, key_time, position_table, time_table,
            step, BUCKET, MASKED,
        )  # fmt: skip
    weight, twice = silu_and_gradient(score, weight_grad, keys.dtype == torch.float32)
    if scale_per_query is not None:
        factor = hl.load(scale_per_query, [position], extra_mask=inside).to(torch.float32)
        weight = weight * factor.unsqueeze(0)
        twice = twice * factor.unsqueeze(0)
    if MASKED:
        kept = keep(query.unsqueeze(0), key.unsqueeze(1), limit, window, contextual, min_full, MASK)
        weight = torch.where(kept, weight, 0.0)
        twice = torch.where(kept, twice, 0.0)
    dv_acc = add_product(dv_acc, weight.to(grad.dtype), grads)
    dk_acc = add_product(dk_acc, operand(twice, queries), queries)
    return dk_acc, dv_acc
