"""Which of the measured configs a table keeps: the fewest that serve every point well enough."""

import math
from collections.abc import Callable, Sequence

SLACK = 1.10
"""A kept config may take this much of the time of the best one at a point."""
NOISE = 1.02
"""Two times are the same within this factor."""
STEPS = 200_000
"""Of the search for the fewest: a few seconds."""


def allowed(times: Sequence[float], current: int) -> float:
    """The longest time that is good enough at a point.

    Within SLACK of the best, and never slower than the config of number `current`, which the table
    had before, so that no point loses by tuning.
    """
    return min(SLACK * min(times), NOISE * times[current])


def smallest_cover(times: Sequence[Sequence[float]], limits: Sequence[float]) -> list[int]:
    """The fewest configs of which each point has one within its limit.

    Args:
        times: of each point (rows) with each config (columns); inf where a config does not run.
        limits: the longest time allowed at each point.

    Returns:
        Their numbers, ascending. Among sets of the same size the one with the least product of
        times at the points' best. Exact, by branch and bound over the point with the fewest
        choices, as far as STEPS go: with many points that differ, the best so far.

    Raises:
        ValueError: a point has no config within its limit.
    """
    choices = []
    for point, (row, limit) in enumerate(zip(times, limits, strict=True)):
        choices.append(frozenset(i for i, time in enumerate(row) if time <= limit))
        if not choices[-1]:
            raise ValueError(f"point {point} has no config within {limit}")
    steps = 0

    def cost(chosen: frozenset[int]) -> float:
        return sum(math.log(min(row[i] for i in chosen)) for row in times)

    def rated(chosen: frozenset[int]) -> tuple[int, float, tuple[int, ...]]:
        return len(chosen), cost(chosen) if chosen else 0.0, tuple(sorted(chosen))

    points = _without_supersets(choices)
    best = rated(_greedy(points))

    def search(chosen: frozenset[int], open_points: list[frozenset[int]]) -> None:
        nonlocal best, steps
        steps += 1
        if not open_points:
            best = min(best, rated(chosen))
            return
        # Points without a choice in common need a config each.
        apart: list[frozenset[int]] = []
        for point in open_points:
            if all(not point & other for other in apart):
                apart.append(point)
        if len(chosen) + len(apart) > best[0]:
            return
        for config in sorted(open_points[0], key=_most(open_points)):
            if steps >= STEPS:
                return
            search(chosen | {config}, [point for point in open_points if config not in point])

    # The point with the fewest choices comes first, and stays first.
    search(frozenset(), points)
    return list(best[2])


def _greedy(points: Sequence[frozenset[int]]) -> frozenset[int]:
    """A cover: the config that serves the most open points, again and again."""
    chosen: set[int] = set()
    while points:
        config = min(frozenset().union(*points), key=_most(points))
        chosen.add(config)
        points = [point for point in points if config not in point]
    return frozenset(chosen)


def _most(points: Sequence[frozenset[int]]) -> Callable[[int], tuple[int, int]]:
    """Sorts configs by how many points they serve."""
    return lambda config: (-sum(config in point for point in points), config)


def _without_supersets(points: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """What serves a point serves every point that has its choices and more."""
    distinct = sorted(set(points), key=len)
    return [p for i, p in enumerate(distinct) if not any(other < p for other in distinct[:i])]
