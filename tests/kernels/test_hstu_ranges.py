"""Which blocks the attention kernels visit, against the mask: every kept pair exactly once."""

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch

from jagged.attention import HSTUMask
from jagged.kernels.hstu_attention import mask as device_mask

# Queries and keys of a block, and whether rows are cut: longer than max_length.
BLOCKS = ((16, 16, False), (32, 16, True), (64, 32, False), (32, 64, True))
LENGTHS = (1, 2, 15, 33, 48, 64, 129)
WINDOWS = ((0, 0), (1, 0), (40, 0), (9, 4), (40, 30), (9, 70))
Visits = list[tuple[int, bool]]  # number of a block, and whether the mask is applied there


def letters(mask: HSTUMask, targets: bool) -> str:
    window = ("wf" if mask.min_full else "w") if mask.window else ""
    return window + ("c" if mask.contextual else "") + ("t" if targets else "")


def rows_of(contextual: int, with_targets: bool) -> list[tuple[int, int | None]]:
    """Row lengths with numbers of targets around the places where something changes."""
    rows: list[tuple[int, int | None]] = []
    for length in LENGTHS:
        if not with_targets:
            rows.append((length, None))
            continue
        near = {0, 1, 7, 20, 40, length - 1, length}
        near |= {length - contextual + i for i in (-1, 0, 1, 2)}
        rows += [(length, targets) for targets in sorted(near) if 0 <= targets <= length]
    return rows


def ranges(
    find: Any,
    rows: list[tuple[int, int | None]],
    seen: list[int],
    mask: HSTUMask,
    block: int,
    *sizes: int,
) -> list[tuple[int, int, list[int]]]:
    """(row, first element, what `find` returns) of each block of each row, computed together."""
    places = [(row, first) for row in range(len(rows)) for first in range(0, seen[row], block)]
    length = torch.tensor([seen[row] for row, _ in places], dtype=torch.int32)
    shift = mask.contextual - 1 if mask.contextual else 0
    limit = torch.tensor(
        [rows[row][0] - (rows[row][1] or 0) - shift for row, _ in places], dtype=torch.int32
    )
    first = torch.tensor([first for _, first in places], dtype=torch.int32)
    text = letters(mask, rows[0][1] is not None)
    found = find(first, length, limit, mask.window, mask.contextual, mask.min_full, text, *sizes)
    columns = [torch.as_tensor(x).expand(len(places)).tolist() for x in found]
    return [
        (*place, list(values))
        for place, values in zip(places, zip(*columns, strict=True), strict=True)
    ]


def key_visits(values: list[int], text: str) -> Visits:
    """The three loops of `attend` and `attend_dq`."""
    begin, full, edge, end, skip, jump = values
    visits = [(number, True) for number in range(begin, full)] if "w" in text else []
    visits += [(number, False) for number in range(full, edge)]
    return visits + [
        (number + jump if "t" in text and number >= skip else number, True)
        for number in range(edge, end)
    ]


def query_visits(values: list[int], text: str, first: int, block: int) -> Visits:
    """The three loops of `attend_dkv`."""
    context, full, edge, end, skip, jump = values
    diagonal = first // block
    visits = [
        (i if "c" in text and i < context else diagonal + i - (context if "c" in text else 0), True)
        for i in range(context + full - diagonal)
    ]
    visits += [(number, False) for number in range(full, edge)]
    return visits + [
        (number + jump if "f" in text and number >= skip else number, True)
        for number in range(edge, end)
    ]


def check(visits: Visits, keep: np.ndarray, block: int, cut: bool, where: str) -> None:
    """`keep` [seen, n]: pairs of the program's own block with the elements that it may visit."""
    numbers = [number for number, _ in visits]
    assert len(set(numbers)) == len(numbers), f"{where}: twice {visits}"
    covered = np.zeros_like(keep)
    for number, masked in visits:
        assert number >= 0, f"{where}: {visits}"
        part = keep[:, number * block : (number + 1) * block]
        assert cut or bool(part.any()), f"{where}: block {number} holds nothing, {visits}"
        if not masked:
            assert part.shape[1] == block, f"{where}: block {number} passes the end, {visits}"
            assert bool(part.all()), f"{where}: block {number} needs the mask, {visits}"
        covered[:, number * block : (number + 1) * block] = True
    assert not bool((keep & ~covered).any()), f"{where}: missed by {visits}"


def check_membership(
    visited: Visits, values: list[int], length: int, block: int, text: str, where: str
) -> None:
    """`visits`, which asks for one block, agrees with the loops."""
    begin, _, _, end, skip, jump = (torch.tensor(value) for value in values)
    number = torch.arange(-(-length // block))
    member = device_mask.visits(number, begin, end, skip, jump, text)
    assert set(number[member].tolist()) == {number for number, _ in visited}, where


@pytest.mark.parametrize("with_targets", [False, True], ids=["plain", "targets"])
@pytest.mark.parametrize("contextual", [0, 1, 20, 100])
def test_each_kept_pair_is_visited_once(contextual: int, with_targets: bool) -> None:
    for (window, min_full), (queries, keys, cut) in itertools.product(WINDOWS, BLOCKS):
        mask = HSTUMask(window, contextual, min_full)
        text = letters(mask, with_targets)
        rows = rows_of(contextual, with_targets)
        picker = random.Random(window)
        seen = [picker.randint(1, length) if cut else length for length, _ in rows]
        kept = [mask.keep(*row).numpy()[:size, :size] for row, size in zip(rows, seen, strict=True)]
        for row, first, values in ranges(
            device_mask.key_blocks, rows, seen, mask, queries, queries, keys
        ):
            where = f"{mask} {rows[row]} {seen[row]} {queries}x{keys} queries {first}"
            own = kept[row][first : first + queries]
            visited = key_visits(values, text)
            check(visited, own, keys, cut, where)
            check_membership(visited, values, seen[row], keys, text, where)
        for row, first, values in ranges(
            device_mask.query_blocks, rows, seen, mask, keys, queries, keys
        ):
            where = f"{mask} {rows[row]} {seen[row]} {queries}x{keys} keys {first}"
            own = kept[row][:, first : first + keys].T
            check(query_visits(values, text, first, queries), own, queries, cut, where)
