"""The kept configs are the fewest that serve every point: compared with trying all subsets."""

import itertools
import math
import random
import time

import pytest

from jagged.tuning.cover import NOISE, SLACK, allowed, smallest_cover

INF = math.inf


def fewest(times: list[list[float]], limits: list[float]) -> int:
    configs = range(len(times[0]))
    for size in range(1, len(times[0]) + 1):
        for chosen in itertools.combinations(configs, size):
            if all(min(row[i] for i in chosen) <= x for row, x in zip(times, limits, strict=True)):
                return size
    raise AssertionError("no cover")


@pytest.mark.parametrize("seed", range(40))
def test_as_few_as_any_subset(seed: int) -> None:
    generator = random.Random(seed)
    points, configs = generator.randint(1, 7), generator.randint(1, 8)
    times = [
        [INF if generator.random() < 0.1 else generator.uniform(1, 1.4) for _ in range(configs)]
        for _ in range(points)
    ]
    for row in times:
        row[generator.randrange(configs)] = 1.0
    limits = [allowed(row, row.index(min(row))) for row in times]
    kept = smallest_cover(times, limits)
    assert len(kept) == fewest(times, limits)
    for row, limit in zip(times, limits, strict=True):
        assert min(row[i] for i in kept) <= limit


def test_greed_would_keep_three() -> None:
    # The first config serves most points, but the other two serve all.
    serves = [{0, 1}, {0, 1}, {0, 2}, {0, 2}, {1}, {2}]
    times = [[1.0 if config in point else 2.0 for config in range(3)] for point in serves]
    assert smallest_cover(times, [1.0] * len(times)) == [1, 2]


def test_among_equally_many_the_faster() -> None:
    assert smallest_cover([[1.05, 1.0], [1.0, 1.0]], [1.1, 1.1]) == [1]


def test_many_points_and_configs_are_quick() -> None:
    generator = random.Random(0)
    times = [[generator.uniform(1, 2) for _ in range(60)] for _ in range(24)]
    kept = smallest_cover(times, [SLACK * min(row) for row in times])
    assert 1 < len(kept) < 12


def test_a_point_that_nothing_serves_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"point 1 has no config within 1\.0"):
        smallest_cover([[1.0], [INF]], [1.0, 1.0])


def test_no_point_loses_against_what_the_table_had() -> None:
    assert allowed([1.0, 1.05], current=0) == NOISE  # the other would be 5 % slower
    assert allowed([1.0, 1.5], current=1) == SLACK
    assert allowed([1.0, INF], current=1) == SLACK


def test_many_points_that_differ_take_seconds_at_most() -> None:
    """Where the exact answer would take days: after hours of measuring, nobody waits for it."""
    generator = random.Random(1)
    times = [[generator.uniform(1, 2) for _ in range(200)] for _ in range(60)]
    limits = [allowed(row, 0) for row in times]
    begin = time.perf_counter()
    kept = smallest_cover(times, limits)
    assert time.perf_counter() - begin < 30
    assert all(min(row[i] for i in kept) <= limit for row, limit in zip(times, limits, strict=True))
    assert len(kept) <= 12  # what taking the config that serves most points, again and again, gives
