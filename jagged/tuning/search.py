"""Which configs to measure at a point.

`quick` climbs: from what the table has, its other configs and earlier bests, to the neighbours of
the best so far, until none is better. `full` measures the whole space.
"""

import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from jagged.tuning.decision import Point
from jagged.tuning.space import Space, everything, neighbours

EFFORTS = ("quick", "full")
QUICK = 40
"""Configs that a quick search measures at a point at most."""
CHUNK = 16
"""Configs that are measured together: large enough for all processes to have work."""

Plain = Mapping[str, Any]
Measure = Callable[[Sequence[Plain]], Sequence[float | None]]
"""Milliseconds of each config, inf for one that does not run, None for one not reached in time."""


class Measured:
    """Configs and their times, each config once."""

    def __init__(self) -> None:
        self.configs: dict[str, Plain] = {}
        self.times: dict[str, float] = {}

    def add(self, configs: Iterable[Plain], measure: Measure) -> bool:
        """Measure those that have not been; whether there were any."""
        new = {key_of(config): config for config in configs}
        new = {key: config for key, config in new.items() if key not in self.times}
        if new:
            for key, time in zip(new, measure(list(new.values())), strict=True):
                if time is not None:
                    self.configs[key], self.times[key] = new[key], time
        return bool(new)

    def best(self) -> str:
        """The key of the fastest."""
        return min(self.times, key=self.times.__getitem__)


def spread(spaces: Sequence[Space], point: Point, base: Plain) -> Sequence[Plain]:
    """CHUNK configs from all over the space, always the same."""
    configs = list(everything(spaces, point, base))
    return random.Random(0).sample(configs, min(CHUNK, len(configs)))


def key_of(config: Plain) -> str:
    """The same text for the same config: the order of settings does not count."""
    rest = sorted((k, v) for k, v in config.items() if k != "constants")
    return json.dumps([rest, config.get("constants", {})])


def search(
    measured: Measured,
    spaces: Sequence[Space],
    point: Point,
    start: Sequence[Plain],
    effort: str,
    measure: Measure,
    stopped: Callable[[], bool],
) -> None:
    """Measure configs at a point.

    Args:
        measured: what is added to.
        spaces, point: what may be tried.
        start: configs to measure first, of which the first is what the table has.
        effort: one of `EFFORTS`.
        measure: times configs.
        stopped: asked between chunks whether time is up.
    """
    measured.add(start[:CHUNK], measure)
    if effort == "full":
        rest = iter([*start[CHUNK:], *everything(spaces, point, start[0])])
        while not stopped() and (chunk := list(islice(rest, CHUNK))):
            measured.add(chunk, measure)
        return
    measured.add(start[CHUNK:], measure)
    while not stopped() and len(measured.times) < QUICK:
        best = measured.best()
        if measured.times[best] == math.inf:
            # Nothing runs so far, as on a GPU with less memory: a look all over the space.
            if not measured.add(spread(spaces, point, start[0]), measure):
                break
            continue
        room = QUICK - len(measured.times)
        around = [
            config
            for config in neighbours(spaces, point, measured.configs[best])
            if key_of(config) not in measured.times
        ]
        if not measured.add(around[:room], measure):
            break
