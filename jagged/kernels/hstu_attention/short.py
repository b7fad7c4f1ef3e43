"""HSTU attention where rows are short: no work list, one loop of keys.

There the time goes into the bytes and into the latency of a program, not into products. A program
finds its row by a division or by a search in `offsets`, so that nothing runs before it, and it has
one loop, all of it under the mask, because a second loop waits for memory once more.
"""

from typing import NamedTuple

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels.hstu_attention.blocks import in_32_bits, load_block, store_block
from jagged.kernels.hstu_attention.mask import block_count, keep, target_id
from jagged.kernels.hstu_attention.score import silu
from jagged.tuning.launch import launchable

FAN = 32  # rows that one step of the search looks at


class Slots(NamedTuple):
    """Programs a head, those of a row (`most`), and the steps of the search for the row.

    Without steps every row has as many programs as the longest. That is fastest where few of them
    find nothing to do: their number is at most half as large again as the search has.
    """

    slots: int
    most: int
    levels: int

    @classmethod
    def of(cls, total: int, rows: int, max_length: int, block: int) -> "Slots":
        most = -(-max_length // block)
        searched = total // block + rows
        if 2 * rows * most <= 3 * searched:
            return cls(rows * most, most, 0)
        levels = 1
        while FAN**levels < rows:
            levels += 1
        return cls(searched, most, levels)


def find_block(
    offsets: Tensor, slot: Tensor, rows: int, most: int, LEVELS: int, BLOCK: int
) -> tuple[Tensor, Tensor]:
    """The row of a slot and its number within the row's slots; device code, inlined.

    In a search row r owns the slots from offsets[r] // BLOCK + r on: at least as many as it has
    blocks, at most one more. Each step narrows the row down to 1 / FAN, by one load of FAN offsets.
    """
    if LEVELS == 0:
        return slot // most, slot % most
    row = slot * 0
    shift = BLOCK.bit_length() - 1
    for level in range(LEVELS):
        step = FAN ** (LEVELS - 1 - level)
        other = hl.arange(FAN) * step + row
        known = other < rows
        begin = hl.load(offsets, [torch.where(known, other, 0)])
        known = known & ((begin >> shift) + other <= slot)
        row = row + (torch.sum(known.to(torch.int32), 0, dtype=torch.int32) - 1) * step
    return row, slot - (hl.load(offsets, [row]) >> shift).to(torch.int32) - row


@launchable(dot=True)
def attend_short(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    num_targets: Tensor | None,
    scale_per_query: Tensor | None,
    out: Tensor,
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
    BLOCK_Q: hl.constexpr,
    BLOCK_K: hl.constexpr,
    LEVELS: hl.constexpr,
    SPARE: hl.constexpr,
) -> None:
    """out [T, H, V] from q, k [T, H, D] and v [T, H, V].

    Elements past `max_length` get 0, as in `forward.attend`. The last SPARE programs write 0 into
    the capacity tail.
    """
    heads = hl.specialize(q.size(1))
    hl.specialize(q.size(2))
    hl.specialize(v.size(2))
    rows = offsets.size(0) - 1
    total = q.size(0)
    for head, slot in hl.grid([heads, slots + SPARE]):
        if slot < slots:
            row, block = find_block(offsets, slot, rows, most, LEVELS, BLOCK_Q)
            start = offsets[row].to(torch.int64)
            length = (offsets[row + 1] - offsets[row]).to(torch.int32)
            first = in_32_bits(length * 0 + block * BLOCK_Q)
            # Elements past max_length are neither queries nor keys: as zeros they give 0.
            seen = in_32_bits(torch.clamp(length, max=max_length))
            if first < seen:
                limit = target_id(length, num_targets, row, contextual, MASK)
                query = first + hl.arange(BLOCK_Q)
                inside = query < seen
                end = last_key(first, seen, contextual, MASK, BLOCK_Q)
                queries = load_block(q, start + query, head, inside, D)
                acc = hl.zeros([BLOCK_Q, V], dtype=torch.float32)
                half = alpha * 0.5
                turns = block_count(end, BLOCK_K)
                for turn in hl.grid(turns):  # from the diagonal down
                    first_key = in_32_bits((turns - 1 - turn) * BLOCK_K)
                    acc = visit_short(
                        acc, queries, query, first_key, k, v, start, seen, limit, head,
                        half, window, contextual, min_full, MASK, D, V, BLOCK_K,
                    )  # fmt: skip
                acc = scaled(acc, start + query, inside, scale, scale_per_query)
                store_block(out, start + query, head, query < length, acc, V)
                # Elements past max_length, of which a row has none as a rule: here, and with
                # another mask than the load, lest masks live on through the loop.
                rest = torch.where(first + BLOCK_Q < seen, 0, length - first - BLOCK_Q)
                for surplus in hl.grid(block_count(rest, BLOCK_Q)):
                    skipped = first + BLOCK_Q + surplus * BLOCK_Q + hl.arange(BLOCK_Q)
                    nothing = hl.zeros([BLOCK_Q, V], dtype=torch.float32)
                    store_block(out, start + skipped, head, skipped < length, nothing, V)
        else:
            past = offsets[rows].to(torch.int64)
            begin_tail = past + (slot - slots) * BLOCK_Q
            rounds = (total - begin_tail + (SPARE * BLOCK_Q - 1)) // (SPARE * BLOCK_Q)
            for tail in hl.grid(rounds):
                position = begin_tail + tail * (SPARE * BLOCK_Q) + hl.arange(BLOCK_Q)
                zeros = hl.zeros([BLOCK_Q, V], dtype=torch.float32)
                store_block(out, position, head, position < total, zeros, V)


def last_key(first: Tensor, seen: Tensor, contextual: int, MASK: str, BLOCK: int) -> Tensor:
    """The end of the keys that a block of queries sees: the row's for one with a prefix."""
    end = torch.minimum(first + BLOCK, seen)
    if "c" in MASK:
        end = torch.where(first < contextual, seen, end)
    return end


def visit_short(
    acc: Tensor,
    queries: Tensor,
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
    """acc + silu(scores) values for one block of keys; device code, inlined where it is called."""
    key = first_key + hl.arange(BLOCK_K)
    inside = key < length
    keys = load_block(k, start + key, head, inside, D)
    values = load_block(v, start + key, head, inside, V)
    # The mask before silu, whose value at 0 is 0: the weights are rounded and packed in pairs.
    kept = keep(query.unsqueeze(1), key.unsqueeze(0), limit, window, contextual, min_full, MASK)
    score = torch.where(kept, hl.dot(queries, keys.T) * half, 0.0)
    weight = silu(score, queries.dtype == torch.float32)
    total: Tensor = hl.dot(weight.to(v.dtype), values, acc=acc)
    return total


def scaled(
    acc: Tensor,
    position: Tensor,
    inside: Tensor,
    scale: float,
    scale_per_query: Tensor | None,
) -> Tensor:
    """acc times the scale of each query; 0 for one that is not inside."""
    if scale_per_query is None:
        acc = acc * scale
    else:
        factor = hl.load(scale_per_query, [position], extra_mask=inside)
        acc = acc * factor.to(torch.float32).unsqueeze(1)
    result: Tensor = torch.where(inside.unsqueeze(1), acc, 0.0)
    return result
