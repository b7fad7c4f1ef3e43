"""Which pairs HSTU attention keeps, and which blocks hold any: device helpers of every kernel.

`MASK` is a string known at compile time, a letter a feature: `w` window, `f` min_full (with w),
`c` contextual prefix, `t` targets; "" is plain causal, which pays for none of them. `keep` is the
meaning of the mask; `key_blocks` and `query_blocks` only say which blocks need it, which need no
mask at all, and which are never visited.

Symbols: n row length, `limit` the id of the targets (M0 of `jagged.HSTUMask`), C `contextual`,
W `window`, F `min_full`. Scalars are 0-d int32 tensors, W, C and F ints.
"""

from typing import Any

import helion.language as hl
import torch


def target_id(length: Any, num_targets: Any, row: Any, contextual: int, MASK: str) -> Any:
    """M0: the id that all targets of the row share, one past the last id of its history."""
    limit = length
    if num_targets is not None:
        targets = torch.clamp(hl.load(num_targets, [row]).to(torch.int64), min=0)
        limit = limit - torch.minimum(targets, length.to(torch.int64)).to(torch.int32)
    if "c" in MASK:
        limit = limit - (contextual - 1)
    return limit


def identity(position: Any, limit: Any, contextual: int, MASK: str) -> Any:
    """id of the element at `position`: context shares 0, targets share `limit`."""
    if "c" in MASK:
        position = torch.clamp(position - (contextual - 1), min=0)
    if "t" in MASK:
        position = torch.minimum(position, limit)
    return position


def first_position(identity: Any, contextual: int, MASK: str) -> Any:
    """The first element with this id or a later one."""
    if "c" in MASK:
        return torch.where(identity > 0, identity + (contextual - 1), 0)
    return torch.clamp(identity, min=0)


def keep(
    query: Any,
    key: Any,
    limit: Any,
    window: int,
    contextual: int,
    min_full: int,
    MASK: str,
) -> Any:
    """Whether the query sees the key; positions in the row, of shapes that broadcast."""
    if MASK == "":
        return query >= key
    row = identity(query, limit, contextual, MASK)
    column = identity(key, limit, contextual, MASK)
    kept = row > column
    if "w" in MASK:
        near = row - column <= window
        if "f" in MASK:
            near = near | (row >= limit - min_full)
        kept = kept & near
    if "c" in MASK:
        kept = kept | ((row == 0) & (column < limit))
    return kept | (query == key)


def block_of(position: Any, BLOCK: int) -> Any:
    """position // BLOCK, a power of two; also below 0."""
    return position >> (BLOCK.bit_length() - 1)


def block_count(position: Any, BLOCK: int) -> Any:
    """Blocks that begin before `position`."""
    return (position + (BLOCK - 1)) >> (BLOCK.bit_length() - 1)


def beyond(number: Any, skip: Any, jump: Any, JUMPS: bool) -> Any:
    """The block that a loop's `number` means: blocks from `skip` on lie `jump` further."""
    return number + torch.where(number - skip >= 0, jump, 0) if JUMPS else number


def from_context(number: Any, context: Any, diagonal: Any, JUMPS: bool) -> Any:
    """The block that a loop's `number` means: first `context` blocks, then from the diagonal."""
    if JUMPS:
        return number + torch.where(number - context >= 0, diagonal - context, 0)
    return diagonal + number


def key_blocks(
    first_query: Any,
    length: Any,
    limit: Any,
    window: int,
    contextual: int,
    min_full: int,
    MASK: str,
    BLOCK_Q: int,
    BLOCK_K: int,
) -> tuple[Any, ...]:
    """Key blocks for the queries from `first_query` on: (begin, full, edge, end, skip, jump).

    [begin, full) and [edge, end) need the mask, [full, edge) none. A block of [edge, end) numbered
    `skip` or more lies `jump` blocks further on: between the history and the diagonal of targets.
    """
    end = torch.minimum(first_query + BLOCK_Q, length)
    full_end = first_query
    begin: Any = 0
    full: Any = 0
    skip: Any = 0
    jump: Any = 0
    history = limit + (contextual - 1) if "c" in MASK else limit
    if "t" in MASK:
        full_end = torch.minimum(full_end, history)
        skip = block_count(history, BLOCK_K)
        jump = torch.clamp(block_of(first_query, BLOCK_K) - skip, min=0)
    if "w" in MASK:
        row = identity(first_query, limit, contextual, MASK)
        last = identity(end - 1, limit, contextual, MASK)
        begin = first_position(row - window, contextual, MASK)
        if "f" in MASK:
            begin = torch.where(last >= limit - min_full, 0, begin)
            last = torch.minimum(last, limit - min_full - 1)
        full = first_position(last - window, contextual, MASK)
        if "f" in MASK:
            full = torch.where(last < row, 0, full)
    if "c" in MASK:
        # Context sees all of the history; with less history than context everyone is alone.
        context = (first_query < contextual) & (limit > 0)
        alone = limit <= 0
        begin = torch.where(context, 0, torch.where(alone, first_query, begin))
        full = torch.where(context | alone, begin, full)
        full_end = torch.where(context | alone, 0, full_end)
        end = torch.where(context, torch.minimum(torch.maximum(end, history), length), end)
        if "t" in MASK:
            jump = torch.where(alone, 0, jump)
    end = block_count(end, BLOCK_K) - jump
    edge = block_of(full_end, BLOCK_K)
    if "w" in MASK or "c" in MASK:
        begin = block_of(begin, BLOCK_K)
        if "w" in MASK:
            full = torch.maximum(torch.minimum(block_count(full, BLOCK_K), end), begin)
        else:
            full = begin
        edge = torch.maximum(edge, full)
    return begin, full, edge, end, skip, jump


def visits(number: Any, begin: Any, end: Any, skip: Any, jump: Any, MASK: str) -> Any:
    """Whether key block `number` is one of those that `key_blocks` gave."""
    if "t" not in MASK:
        return (number >= begin) & (number < end)
    outside = (number < skip) | (number >= skip + jump)
    counted = torch.where(number < skip, number, number - jump)
    return outside & (counted >= begin) & (counted < end)


def query_blocks(
    first_key: Any,
    length: Any,
    limit: Any,
    window: int,
    contextual: int,
    min_full: int,
    MASK: str,
    BLOCK_Q: int,
    BLOCK_K: int,
) -> tuple[Any, ...]:
    """Query blocks that visit the keys from `first_key` on: (context, full, edge, end, skip, jump).

    Context block i < `context` is query block i. The blocks from the diagonal to `full` need the
    mask, [full, edge) none and hold no row past the end, [edge, end) need it. A block of [edge,
    end) numbered `skip` or more lies `jump` blocks further on: between a window and the elements
    that are free of it.
    """
    past_key = torch.minimum(first_key + BLOCK_K, length)
    end = length
    full_end = length
    context: Any = 0
    skip: Any = 0
    jump: Any = 0
    history = limit + (contextual - 1) if "c" in MASK else limit
    if "w" in MASK:
        span = contextual if "c" in MASK else 1
        near = identity(first_key, limit, contextual, MASK) + window
        reach = identity(past_key - 1, limit, contextual, MASK) + window
        full_end = torch.where(near >= limit, length, torch.minimum(near + span, length))
        end = torch.where(reach >= limit, length, torch.minimum(reach + span, length))
    if "t" in MASK:
        full_end = torch.where(past_key > history, past_key, full_end)
        end = torch.where(first_key >= history, past_key, end)
    if "c" in MASK:
        # Up to the diagonal's block, from which the others are counted.
        context = torch.clamp(block_of(first_key, BLOCK_Q), max=block_count(contextual, BLOCK_Q))
        context = torch.where((limit > 0) & (first_key < history), context, 0)
        full_end = torch.where(limit > 0, full_end, past_key)
        end = torch.where(limit > 0, end, past_key)
    full = block_count(past_key, BLOCK_Q)
    edge = torch.maximum(block_of(full_end, BLOCK_Q), full)
    end = torch.maximum(block_count(end, BLOCK_Q), edge)
    if "f" in MASK:
        skip = end
        free = block_of(first_position(limit - min_full, contextual, MASK), BLOCK_Q)
        free = torch.maximum(free, end)
        more = torch.clamp(block_count(length, BLOCK_Q) - free, min=0)
        more = torch.where((first_key < history) & (limit > 0), more, 0)
        jump = free - end
        end = end + more
    return context, full, edge, end, skip, jump
