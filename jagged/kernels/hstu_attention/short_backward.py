"""Backward of HSTU attention where rows are short: all three gradients from one launch.

Every block of a row and head has two programs, one for the gradient of q and one for those of k and
v. They start one after the other, so that the second finds in the L2 cache what the first has read.
There is no atomic operation.
"""

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels.hstu_attention.blocks import in_32_bits, load_block, store_block
from jagged.kernels.hstu_attention.mask import block_count, keep, target_id
from jagged.kernels.hstu_attention.score import last_factor, operand, silu_and_gradient
from jagged.kernels.hstu_attention.short import find_block, last_key, scaled
from jagged.tuning.launch import launchable


@launchable(dot=True)
def attend_short_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    num_targets: Tensor | None,
    scale_per_query: Tensor | None,
    dq: Tensor,
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
    MASK: hl.constexpr,
    D: hl.constexpr,
    V: hl.constexpr,
    BLOCK: hl.constexpr,
    BLOCK_Q: hl.constexpr,
    BLOCK_K: hl.constexpr,
    LEVELS: hl.constexpr,
    SPARE: hl.constexpr,
) -> None:
    """dq, dk [T, H, D] and dv [T, H, V].

    A program owns BLOCK queries and visits BLOCK_K keys at a time, or owns BLOCK keys and visits
    BLOCK_Q queries at a time. The last SPARE programs write 0 into the capacity tail.
    """
    heads = hl.specialize(q.size(1))
    hl.specialize(q.size(2))
    hl.specialize(v.size(2))
    rows = offsets.size(0) - 1
    total = q.size(0)
    for part, slot in hl.grid([2 * heads, slots + SPARE]):
        head = part % heads
        if slot < slots:
            row, block = find_block(offsets, slot, rows, most, LEVELS, BLOCK)
            start = offsets[row].to(torch.int64)
            length = (offsets[row + 1] - offsets[row]).to(torch.int32)
            first = in_32_bits(length * 0 + block * BLOCK)
            # Elements past max_length are neither queries nor keys: as zeros they give 0.
            seen = in_32_bits(torch.clamp(length, max=max_length))
            if first < seen:
                limit = target_id(length, num_targets, row, contextual, MASK)
                half = alpha * 0.5
                mine = first + hl.arange(BLOCK)
                inside = mine < seen
                if part < heads:
                    queries = load_block(q, start + mine, head, inside, D)
                    grads = load_block(grad, start + mine, head, inside, V)
                    end = last_key(first, seen, contextual, MASK, BLOCK)
                    acc = hl.zeros([BLOCK, D], dtype=torch.float32)
                    for inner in hl.grid(block_count(end, BLOCK_K)):
                        acc = visit_short_keys(
                            acc, queries, grads, mine, inner * BLOCK_K, k, v, start, seen, limit,
                            head, half, window, contextual, min_full, MASK, D, V, BLOCK_K,
                        )  # fmt: skip
                    acc = scaled(
                        acc * last_factor(half, k), start + mine, inside, scale, scale_per_query
                    )
                    store_block(dq, start + mine, head, mine < length, acc, D)
                else:
                    keys = load_block(k, start + mine, head, inside, D)
                    values = load_block(v, start + mine, head, inside, V)
                    begin = first // BLOCK_Q
                    lead = first * 0
                    if "c" in MASK:  # the queries of the prefix come first
                        lead = torch.minimum(block_count(lead + contextual, BLOCK_Q), begin)
                    turns = torch.clamp(block_count(seen, BLOCK_Q) - begin, min=0) + lead
                    dk_acc = hl.zeros([BLOCK, D], dtype=torch.float32)
                    dv_acc = hl.zeros([BLOCK, V], dtype=torch.float32)
                    for turn in hl.grid(turns):
                        number = begin + turn
                        if "c" in MASK:
                            number = torch.where(turn < lead, turn, number - lead)
                        dk_acc, dv_acc = visit_short_queries(
                            dk_acc, dv_acc, keys, values, mine, number * BLOCK_Q, q, grad,
                            scale_per_query, start, seen, limit, head, half, window, contextual,
                            min_full, MASK, D, V, BLOCK_Q,
                        )  # fmt: skip
                    dk_acc = dk_acc * last_factor(half, q)
                    if scale_per_query is None:
                        dk_acc = dk_acc * scale
                        dv_acc = dv_acc * scale
                    store_block(dk, start + mine, head, mine < length, dk_acc, D)
                    store_block(dv, start + mine, head, mine < length, dv_acc, V)
                # Elements past max_length, of which a row has none as a rule: here, and with
                # another mask than the load, lest masks live on through the loops.
                rest = torch.where(first + BLOCK < seen, 0, length - first - BLOCK)
                for surplus in hl.grid(block_count(rest, BLOCK)):
                    skipped = first + BLOCK + surplus * BLOCK + hl.arange(BLOCK)
                    nothing = hl.zeros([BLOCK, D], dtype=torch.float32)
                    if part < heads:
                        store_block(dq, start + skipped, head, skipped < length, nothing, D)
                    else:
                        store_block(dk, start + skipped, head, skipped < length, nothing, D)
                        nothing_v = hl.zeros([BLOCK, V], dtype=torch.float32)
                        store_block(dv, start + skipped, head, skipped < length, nothing_v, V)
        else:
            past = offsets[rows].to(torch.int64)
            begin_tail = past + (slot - slots) * BLOCK
            turns = (total - begin_tail + (SPARE * BLOCK - 1)) // (SPARE * BLOCK)
            for tail in hl.grid(turns):
                position = begin_tail + tail * (SPARE * BLOCK) + hl.arange(BLOCK)
                unused = position < total
                zeros = hl.zeros([BLOCK, D], dtype=torch.float32)
                if part < heads:
                    store_block(dq, position, head, unused, zeros, D)
                else:
                    store_block(dk, position, head, unused, zeros, D)
                    zeros_v = hl.zeros([BLOCK, V], dtype=torch.float32)
                    store_block(dv, position, head, unused, zeros_v, V)


def visit_short_keys(
    acc: Tensor,
    queries: Tensor,
    grads: Tensor,
    query: Tensor,
    first_key: Tensor,
    k: Tensor,
    v: Tensor,
    start: Tensor,
    length: Tensor,
    limit: Tensor,
    head: int,
    half: float,
    window: int,
    contextual: int,
    min_full: int,
    MASK: str,
    D: int,
    V: int,
    BLOCK_K: int,
) -> Tensor:
    """acc + 2 dS keys for one block of keys; device code, inlined where it is called."""
    key = first_key + hl.arange(BLOCK_K)
    inside = key < length
    keys = load_block(k, start + key, head, inside, D)
    values = load_block(v, start + key, head, inside, V)
    kept = keep(query.unsqueeze(1), key.unsqueeze(0), limit, window, contextual, min_full, MASK)
    score = torch.where(kept, hl.dot(queries, keys.T) * half, 0.0)
    weight_grad = torch.where(kept, hl.dot(grads, values.T), 0.0)
    _value, twice = silu_and_gradient(score, weight_grad, queries.dtype == torch.float32)
    total: Tensor = hl.dot(operand(twice, keys), keys, acc=acc)
    return total


def visit_short_queries(
    dk_acc: Tensor,
    dv_acc: Tensor,
    keys: Tensor,
    values: Tensor,
    key: Tensor,
    first_query: Tensor,
    q: Tensor,
    grad: Tensor,
    scale_per_query: Tensor | None,
    start: Tensor,
    length: Tensor,
    limit: Tensor,
    head: int,
    half: float,
    window: int,
    contextual: int,
    min_full: int,
    MASK: str,
    D: int,
    V: int,
    BLOCK_Q: int,
) -> tuple[Tensor, Tensor]:
    """The sums of Pᵀ grad and 2 dSᵀ q after one block of queries; device code, inlined."""
    query = first_query + hl.arange(BLOCK_Q)
    inside = query < length
    queries = load_block(q, start + query, head, inside, D)
    grads = load_block(grad, start + query, head, inside, V)
    kept = keep(query.unsqueeze(0), key.unsqueeze(1), limit, window, contextual, min_full, MASK)
    score = torch.where(kept, hl.dot(keys, queries.T) * half, 0.0)
    weight_grad = torch.where(kept, hl.dot(values, grads.T), 0.0)
    weight, twice = silu_and_gradient(score, weight_grad, keys.dtype == torch.float32)
    if scale_per_query is not None:
        factor = hl.load(scale_per_query, [start + query], extra_mask=inside).to(torch.float32)
        weight = weight * factor.unsqueeze(0)
        twice = twice * factor.unsqueeze(0)
    dv_acc = hl.dot(weight.to(grad.dtype), grads, acc=dv_acc)
    dk_acc = hl.dot(operand(twice, queries), queries, acc=dk_acc)
    return dk_acc, dv_acc
