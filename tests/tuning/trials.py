"""In place of a GPU: what configs cost, by a formula."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from jagged.tuning.configs import Config
from jagged.tuning.plan import Unit
from jagged.tuning.trials import DeviceLost, Fit


@dataclass
class CostTrials:
    """The best config has as many warps as a row has 32 elements, at most 8; blocks count little.

    Blocks of 8 spill, blocks of 256 do not fit, and blocks of 16 are wrong.
    """

    hardware: str = "a GPU"
    capability: tuple[int, int] = (9, 9)
    shared_memory: int = 1000
    seconds: float = 1.0
    """That a measurement takes, on `clock`."""
    interrupt_after: int | None = None
    broken: Config | None = None
    loses_device: bool = False
    """Whether the broken config does not only give a wrong result."""
    now: float = 0.0
    timed: list[tuple[str, Config]] = field(default_factory=list)
    checked: int = 0

    def clock(self) -> float:
        return self.now

    def fits(self, unit: Unit, configs: Sequence[Config]) -> list[Fit]:
        return [
            Fit(stack=16 * (8 in blocks(config)), shared=2000 * (256 in blocks(config)))
            for config in configs
        ]

    def check(self, unit: Unit, config: Config) -> str:
        self.checked += 1
        self.now += self.seconds
        if config is self.broken and self.loses_device:
            raise DeviceLost("broke the GPU's context", config)
        return "result 0 is wrong" if 16 in blocks(config) or config is self.broken else ""

    def times(self, unit: Unit, configs: Sequence[Config]) -> list[float | str]:
        if self.interrupt_after is not None and len(self.timed) >= self.interrupt_after:
            raise KeyboardInterrupt
        self.timed += [(unit.name, config) for config in configs]
        return [cost(unit, config) for config in configs]


def warps(config: Config) -> int:
    return int(config.settings["num_warps"])


def blocks(config: Config) -> list[int]:
    return list(config.settings["block_sizes"])


def cost(unit: Unit, config: Config) -> float:
    wanted = min(8, max(1, unit.point[2] // 32))
    steps = sum(abs(math.log2(size / 32)) for size in blocks(config))
    return 1 + abs(math.log2(warps(config) / wanted)) + 0.001 * steps
