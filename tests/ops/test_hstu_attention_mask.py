"""The mask of HSTU attention: its formula pair by pair, its pictures, and the CPU's intervals."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jagged import HSTUMask
from jagged.eager._hstu_mask import Shape, blocks, intervals

MASKS = st.builds(
    HSTUMask,
    window=st.integers(0, 12),
    contextual=st.integers(0, 12),
    min_full=st.integers(0, 6),
)


def keep_pair(mask: HSTUMask, length: int, targets: int | None, query: int, key: int) -> bool:
    """The formula of the mask for one pair, without tensors."""
    shift = max(mask.contextual - 1, 0)
    history = length - shift - (targets or 0)

    def identity(position: int) -> int:
        found = max(position - shift, 0)
        return found if targets is None else min(found, history)

    row, column = identity(query), identity(key)
    kept = query == key or row > column
    if mask.window > 0:
        kept = kept and (
            row - column <= mask.window or (mask.min_full > 0 and row >= history - mask.min_full)
        )
    if mask.contextual > 0:
        kept = kept or (row == 0 and column < history)
    return kept


def keep_pairs(mask: HSTUMask, length: int, targets: int | None) -> list[list[bool]]:
    return [
        [keep_pair(mask, length, targets, query, key) for key in range(length)]
        for query in range(length)
    ]


def test_keep_is_the_formula() -> None:
    for window, contextual, min_full in itertools.product((0, 1, 2, 5), (0, 1, 2, 4, 9), (0, 1, 3)):
        mask = HSTUMask(window=window, contextual=contextual, min_full=min_full)
        for length in (0, 1, 2, 5, 8):
            for targets in (None, *range(length + 1)):
                expected = keep_pairs(mask, length, targets)
                assert mask.keep(length, targets).tolist() == expected, (mask, length, targets)


@given(mask=MASKS, length=st.integers(0, 30), targets=st.integers(-3, 33))
def test_keep_is_the_formula_for_any_mask(mask: HSTUMask, length: int, targets: int) -> None:
    clamped = min(max(targets, 0), length)
    assert mask.keep(length, targets).tolist() == keep_pairs(mask, length, clamped)


def test_pictures() -> None:
    assert HSTUMask(contextual=2).picture(8, targets=2).split() == [
        "11111100",
        "11111100",
        "11100000",
        "11110000",
        "11111000",
        "11111100",
        "11111110",
        "11111101",
    ]
    assert HSTUMask(contextual=2, window=2).picture(8, targets=2).split() == [
        "11111100",
        "11111100",
        "11100000",
        "11110000",
        "00111000",
        "00011100",
        "00001110",
        "00001101",
    ]
    assert HSTUMask().picture(3).split() == ["100", "110", "111"]
    assert HSTUMask(window=1, min_full=1).picture(4).split() == ["1000", "1100", "0110", "1111"]
    assert HSTUMask(contextual=3).picture(3, targets=1).split() == ["100", "010", "001"]
    assert HSTUMask().picture(0) == ""


def test_the_docstring_shows_a_picture() -> None:
    picture = HSTUMask(contextual=2, window=2).picture(8, targets=2)
    assert HSTUMask.__doc__ is not None
    assert "\n".join(f"        {line}" for line in picture.split()) in HSTUMask.__doc__


@pytest.mark.parametrize("name", ["window", "contextual", "min_full"])
def test_negative_numbers(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} must not be negative, got -1"):
        HSTUMask(**{name: -1})
    with pytest.raises(TypeError, match=rf"{name} must be a Python int"):
        HSTUMask(**{name: None})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=rf"{name} must be a Python int"):
        HSTUMask(**{name: torch.tensor(1)})


def test_masks_compare_and_hash() -> None:
    assert HSTUMask(window=3) == HSTUMask(window=3) != HSTUMask(window=4)
    assert len({HSTUMask(), HSTUMask(), HSTUMask(contextual=1)}) == 2


@given(
    mask=MASKS,
    rows=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=3),
    with_targets=st.booleans(),
    padding=st.integers(0, 5),
    queries=st.integers(2, 50),
)
def test_blocks_cover_what_is_kept(
    mask: HSTUMask,
    rows: list[tuple[int, int]],
    with_targets: bool,
    padding: int,
    queries: int,
) -> None:
    """Every kept pair is in one block, and nothing else passes the mask of a block."""
    lengths = torch.tensor([[length] for length, _ in rows])
    targets = torch.tensor([[min(number, length)] for length, number in rows])
    size = int(lengths.max()) + padding
    position = torch.minimum(torch.arange(size)[None], lengths - 1)
    shape = Shape(mask.window, mask.contextual, mask.min_full)
    spans = intervals(position, lengths, targets if with_targets else None, shape)
    seen = torch.zeros(len(rows), size, size, dtype=torch.int64)
    for block in blocks(spans, size, queries):
        keep = spans.block(block)
        assert not block.full or bool(keep.all())
        seen[:, block.queries, block.keys] += keep
    for i, (length, number) in enumerate(rows):
        expected = mask.keep(length, min(number, length) if with_targets else None)
        assert torch.equal(seen[i, :length, :length], expected.to(torch.int64))
        assert not seen[i, :length, length:].any()


def pairs_in_blocks(mask: HSTUMask, length: int, targets: int | None, queries: int) -> int:
    shape = Shape(mask.window, mask.contextual, mask.min_full)
    position = torch.arange(length)[None]
    given_targets = None if targets is None else torch.tensor([[targets]])
    spans = intervals(position, torch.tensor([[length]]), given_targets, shape)
    return sum(
        (block.query_end - block.query_start) * (block.key_end - block.key_start)
        for block in blocks(spans, length, queries)
    )


def test_masked_blocks_are_not_among_them() -> None:
    """Blocks above the diagonal, outside the window, and of other targets."""
    n, w = 1024, 64
    assert pairs_in_blocks(HSTUMask(), n, None, w) == w * w * 16 * 17 // 2
    assert pairs_in_blocks(HSTUMask(window=w), n, None, w) <= 16 * w * 2 * w
    history = n // 2
    causal = w * w * 8 * 9 // 2
    assert pairs_in_blocks(HSTUMask(), n, n - history, w) == causal + 8 * (w * history + w * w)
    assert pairs_in_blocks(HSTUMask(window=w), n, n - history, w) <= 16 * w * 2 * w
    with_context = pairs_in_blocks(HSTUMask(contextual=10, window=w), n, None, w)
    assert with_context <= w * n + 16 * w * 2 * w
