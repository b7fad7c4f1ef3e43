"""Gradients of the two tables of the relative bias.

A program owns the pairs of blocks that lie on one diagonal of a row: they share the entries of the
position table, so it adds them up, over blocks and heads, before it touches the table. The buckets
of a pair of blocks are few, since neighbours in time share one: it goes through those that occur.
Both add to float64 tables by atomics, the only ones of this library.
"""

from typing import Any

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels.hstu_attention.bias import bucket_of, key_times, next_times, relative_bias
from jagged.kernels.hstu_attention.blocks import load_block
from jagged.kernels.hstu_attention.mask import keep, key_blocks, target_id, visits
from jagged.kernels.hstu_attention.score import silu_and_gradient
from jagged.tuning.launch import launchable

TOGETHER = 4  # entries whose sums are taken at once, since each waits for all warps


@launchable(dot=True)
def attend_dbias(
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
    dposition: Tensor | None,
    dtime: Tensor | None,
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
    BLOCK: hl.constexpr,
    SIDES: hl.constexpr,
) -> None:
    """Add to dposition [2N - 1] and dtime [buckets + 1], float64, what is not None.

    Programs and arguments as in `forward.attend`; the block of a slot is the number of a diagonal:
    0 is the main one, the next ones have older keys. SIDES is 2 with a contextual prefix, whose
    queries see later keys: the second half of the programs has those diagonals.
    """
    heads = hl.specialize(q.size(1))
    hl.specialize(q.size(2))
    hl.specialize(v.size(2))
    for side, slot in hl.grid([SIDES, slots]):
        if table is None:
            row = slot // most
            number = slot % most
        else:
            row = table[slot, 0]
            number = table[slot, 1]
        start = offsets[row].to(torch.int64)
        length = (offsets[row + 1] - offsets[row]).to(torch.int32)
        seen = torch.clamp(length, max=max_length)
        diagonal = length * 0 + number
        count = (seen + (BLOCK - 1)) // BLOCK
        if (diagonal >= side) & (diagonal < count):
            limit = target_id(length, num_targets, row, contextual, MASK)
            pairs = count - diagonal
            if SIDES == 2:
                context = torch.clamp(pairs, max=(contextual + (BLOCK - 1)) // BLOCK)
                pairs = pairs + side * (context - pairs)
            half = alpha * 0.5
            acc = hl.zeros([BLOCK, BLOCK], dtype=torch.float32)
            for pair in hl.grid(pairs):
                first_query = (pair + (1 - side) * diagonal) * BLOCK
                first_key = (pair + side * diagonal) * BLOCK
                begin, _full, _edge, end, skip, jump = key_blocks(
                    first_query, seen, limit, window, contextual, min_full, MASK, BLOCK, BLOCK
                )
                visited = visits(pair + side * diagonal, begin, end, skip, jump, MASK)
                query = first_query + hl.arange(BLOCK)
                key = first_key + hl.arange(BLOCK)
                query_inside = query < seen
                key_inside = key < seen
                if time_table is not None:
                    query_time = next_times(timestamps, start, query, length).unsqueeze(1)
                    key_time = key_times(timestamps, start, key, length).unsqueeze(0)
                else:
                    query_time = None
                    key_time = None
                bias = relative_bias(
                    query.unsqueeze(1), key.unsqueeze(0), query_time, key_time, position_table,
                    time_table, step, BUCKET, True,
                )  # fmt: skip
                pair_grad = hl.zeros([BLOCK, BLOCK], dtype=torch.float32)
                for head in hl.grid(torch.where(visited, heads, 0)):
                    queries = load_block(q, start + query, head, query_inside, D)
                    grads = load_block(grad, start + query, head, query_inside, V)
                    keys = load_block(k, start + key, head, key_inside, D)
                    values = load_block(v, start + key, head, key_inside, V)
                    score = hl.dot(queries, keys.T) * half + 0.5 * bias
                    # Exact, since the tables are float32 as a rule, whatever q has.
                    _value, twice = silu_and_gradient(score, hl.dot(grads, values.T), True)
                    pair_grad = pair_grad + 0.5 * twice
                kept = keep(
                    query.unsqueeze(1), key.unsqueeze(0), limit, window, contextual, min_full, MASK
                )
                kept = kept & query_inside.unsqueeze(1) & key_inside.unsqueeze(0)
                if scale_per_query is None:
                    pair_grad = pair_grad * scale
                else:
                    factor = hl.load(scale_per_query, [start + query], extra_mask=query_inside)
                    pair_grad = pair_grad * factor.to(torch.float32).unsqueeze(1)
                pair_grad = torch.where(kept, pair_grad, 0.0)
                acc = acc + pair_grad
                if dtime is not None:
                    last = dtime.size(0) - 1
                    bucket = bucket_of(query_time, key_time, step, last, BUCKET)
                    lowest = torch.where(kept, bucket, last).amin(1).amin(0)
                    highest = torch.where(kept, bucket, -1).amax(1).amax(0)
                    many = torch.where(visited, highest - lowest + 1, 0)
                    flat_grad = pair_grad.reshape(BLOCK * BLOCK)
                    flat_bucket = bucket.reshape(BLOCK * BLOCK)
                    for turn in hl.grid((many + (TOGETHER - 1)) // TOGETHER):
                        first = lowest + turn * TOGETHER
                        entry, part = sums_by_entry(flat_grad, flat_bucket, first)
                        # Entries past the last get the 0 of no pair, added to that one.
                        entry = torch.clamp(entry, max=last)
                        hl.atomic_add(dtime, [entry], part.to(torch.float64))
            if dposition is not None:
                size = dposition.size(0)
                apart = (2 * side - 1) * diagonal * BLOCK
                lane = hl.arange(BLOCK)
                index = size // 2 + apart + lane.unsqueeze(0) - lane.unsqueeze(1)
                # Only pairs outside the row, which hold 0, reach beyond the table.
                index = torch.clamp(index, min=0, max=size - 1)
                hl.atomic_add(dposition, [index], acc.to(torch.float64))


def sums_by_entry(values: Any, entry_of: Any, first: Any) -> tuple[Any, Any]:
    """TOGETHER entries from `first` on, and the sums of the values of each; inlined."""
    entry = first + hl.arange(TOGETHER)
    here = entry.unsqueeze(1) == entry_of.unsqueeze(0)
    return entry, torch.where(here, values.unsqueeze(0), 0.0).sum(1)
