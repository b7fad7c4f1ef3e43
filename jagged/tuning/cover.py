"""Which of the measured configs a table keeps: the fewest that serve every point well enough."""

import math
from collections.abc import Callable, Sequence

SLACK = 1.10
"""A kept config may take this much of the time of the best one at a point."""
NOISE = 1.02
"""Two times are the same within this factor."""


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
        times at the points' best. Exact: branch and bound over the point with the fewest choices.

    Raises:
        ValueError: a point has no config within its limit.
    """
    choices = []
    for point, (row, limit) in enumerate(zip(times, limits, strict=True)):
        choices.append(frozenset(i for i, time in enumerate(row) if time <= limit))
        if not choices[-1]:
            raise ValueError(f"point {point} has no config within {limit}")
    best: tuple[float, float, tuple[int, ...]] = (math.inf, math.inf, ())

    def cost(chosen: frozenset[int]) -> float:
        return sum(math.log(min(row[i] for i in chosen)) for row in times)

    def search(chosen: frozenset[int], open_points: list[frozenset[int]]) -> None:
        nonlocal best
        if not open_points:
            best = min(best, (len(chosen), cost(chosen) if chosen else 0.0, tuple(sorted(chosen))))
            return
        # Points without a choice in common need a config each.
        apart: list[frozenset[int]] = []
        for point in open_points:
            if all(not point & other for other in apart):
                apart.append(point)
        if len(chosen) + len(apart) > best[0]:
            return
        for config in sorted(open_points[0], key=_most(open_points)):
            search(chosen | {config}, [point for point in open_points if config not in point])

    # The point with the fewest choices comes first, and stays first.
    search(frozenset(), _without_supersets(choices))
    return list(best[2])


def _most(points: Sequence[frozenset[int]]) -> Callable[[int], tuple[int, int]]:
    """Sorts configs by how many points they serve."""
    return lambda config: (-sum(config in point for point in points), config)


def _without_supersets(points: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """What serves a point serves every point that has its choices and more."""
    distinct = sorted(set(points), key=len)
    return [p for i, p in enumerate(distinct) if not any(other < p for other in distinct[:i])]
