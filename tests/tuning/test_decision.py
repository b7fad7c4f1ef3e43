"""Decisions give what the rule of the nearest point gives, with as few comparisons as can be."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jagged.tuning.decision import Point, Split, decide, distance, follow, source

GRID = [
    (itemsize, 1 << width >> 1, 1 << length >> 1)
    for itemsize in (1, 2, 4, 8)
    for width in range(14)
    for length in range(14)
]


def nearest(points: list[tuple[Point, int]], point: Point) -> int:
    return min(points, key=lambda known: distance(known[0], point))[1]


points = st.dictionaries(
    st.tuples(
        st.sampled_from((2, 4)),
        st.integers(0, 10).map(lambda n: 1 << n),
        st.integers(0, 10).map(lambda n: 1 << n),
    ),
    st.integers(0, 4),
    min_size=1,
    max_size=8,
).map(lambda found: list(found.items()))


@given(points)
def test_every_point_gets_what_the_nearest_has(known: list[tuple[Point, int]]) -> None:
    decision = decide(known)
    for point in GRID:
        assert follow(decision, point) == nearest(known, point)


def test_widths_between_powers_of_two_count_as_the_lower_one() -> None:
    decision = decide([((2, 32, 16), 0), ((2, 128, 16), 1)])
    assert [follow(decision, (2, width, 16)) for width in (1, 48, 63, 64, 127, 128, 300)] == [
        *(0, 0, 0, 0, 0, 1, 1)
    ]


def leaves(decision: Split | int) -> int:
    if not isinstance(decision, Split):
        return 1
    return leaves(decision.below) + leaves(decision.above)


def test_a_grid_of_points_needs_one_leaf_each() -> None:
    grid = list(itertools.product((2, 4), (32, 128), (4, 64)))
    assert leaves(decide([(point, i) for i, point in enumerate(grid)])) == len(grid)


def test_points_that_agree_need_no_comparison() -> None:
    assert decide([((2, 32, 4), 3), ((4, 512, 512), 3)]) == 3


def test_the_source_is_python_that_decides_alike() -> None:
    known = [((2, 32, 4), 0), ((2, 128, 64), 1), ((4, 32, 512), 2)]
    decision = decide(known)
    names: dict[str, object] = {}
    lines = ["def key(itemsize, width, length):", *source(decision)]
    exec("\n".join(lines), names)
    key = names["key"]
    assert callable(key)
    assert [key(*point) for point in GRID] == [follow(decision, point) for point in GRID]


def test_no_points_are_an_error() -> None:
    with pytest.raises(ValueError, match="points must hold at least one"):
        decide([])
