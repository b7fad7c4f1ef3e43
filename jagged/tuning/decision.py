"""From measured points to a decision: nested comparisons with powers of two, as few as possible.

A point is (itemsize, width, length). Between points the nearest decides: the item size first, then
the steps of two in width and length together; the first of two as near. That rule cuts the space
into regions, and `decide` finds the fewest boxes that they are made of.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

Point = tuple[int, int, int]  # itemsize, width, length
FEATURES = ("itemsize", "width", "length")

_Box = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Split:
    """`below` where the feature is less than `limit`, else `above`; a leaf is an index."""

    feature: str
    limit: int
    below: "Decision"
    above: "Decision"


Decision = Split | int


def distance(known: Point, point: Point) -> tuple[int, int]:
    """How far `known` is from `point`: in item size, then in width and length."""
    itemsize, width, length = (
        abs(a.bit_length() - b.bit_length()) for a, b in zip(known, point, strict=True)
    )
    return itemsize, width + length


def decide(points: Sequence[tuple[Point, int]]) -> Decision:
    """The decision that gives each point its index, and any other that of the nearest point."""
    if not points:
        raise ValueError("points must hold at least one, got none")
    # Features count by their number of bits. Layers that decide alike are taken together.
    axes = [_layers(points, axis) for axis in range(3)]
    labels = {
        (i, j, k): _nearest(points, (1 << a >> 1, 1 << b >> 1, 1 << c >> 1))
        for i, a in enumerate(axes[0])
        for j, b in enumerate(axes[1])
        for k, c in enumerate(axes[2])
    }

    @cache
    def best(box: _Box) -> tuple[int, Decision]:
        """Number of leaves, and the decision."""
        found = {
            labels[i, j, k] for i in range(*box[0]) for j in range(*box[1]) for k in range(*box[2])
        }
        if len(found) == 1:
            return 1, found.pop()
        fewest: tuple[int, Decision] | None = None
        for axis, name in enumerate(FEATURES):
            for at in range(box[axis][0] + 1, box[axis][1]):
                low, below = best(_with(box, axis, (box[axis][0], at)))
                high, above = best(_with(box, axis, (at, box[axis][1])))
                if fewest is None or low + high < fewest[0]:
                    split = Split(name, 1 << axes[axis][at] >> 1, below, above)
                    fewest = low + high, split
        assert fewest is not None
        return fewest

    whole = (0, len(axes[0])), (0, len(axes[1])), (0, len(axes[2]))
    return best(whole)[1]


def follow(decision: Decision, point: Point) -> int:
    """The index that a decision gives."""
    values: dict[str, int] = dict(zip(FEATURES, point, strict=True))
    while isinstance(decision, Split):
        decision = decision.below if values[decision.feature] < decision.limit else decision.above
    return decision


def source(decision: Decision, indent: str = "    ") -> list[str]:
    """The decision as lines of Python."""
    if not isinstance(decision, Split):
        return [f"{indent}return {decision}"]
    return [
        f"{indent}if {decision.feature} < {decision.limit}:",
        *source(decision.below, indent + "    "),
        *source(decision.above, indent),
    ]


def _with(box: _Box, axis: int, side: tuple[int, int]) -> _Box:
    sides = list(box)
    sides[axis] = side
    return sides[0], sides[1], sides[2]


def _nearest(points: Sequence[tuple[Point, int]], point: Point) -> int:
    return min(points, key=lambda known: distance(known[0], point))[1]


def _layers(points: Sequence[tuple[Point, int]], axis: int) -> list[int]:
    """The first number of bits of each layer across `axis` that does not decide as the one before.

    Only numbers up to the largest of a point: beyond, all points are further away alike.
    """
    spans = [range(1 + max(point[i].bit_length() for point, _ in points)) for i in range(3)]
    chosen: list[int] = []
    before: list[int] = []
    for bits in spans[axis]:
        ranges = [[bits] if i == axis else spans[i] for i in range(3)]
        layer = [
            _nearest(points, (1 << a >> 1, 1 << b >> 1, 1 << c >> 1))
            for a, b, c in itertools.product(*ranges)
        ]
        if layer != before:
            chosen.append(bits)
        before = layer
    return chosen
