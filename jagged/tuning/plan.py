"""What there is to tune for some calls of ops: the tables that decide, and at which points.

Running the implementation on meta tensors, with a recorder in place of the launcher, shows which
tables a call asks at which points and what it launches; so nothing here knows the ops one by one.
"""

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest import mock

from torch import Tensor

from jagged.tuning.cases import Case
from jagged.tuning.configs import CPU, Config, ConfigTable, point_of
from jagged.tuning.decision import Point
from jagged.tuning.launch import Launchable
from jagged.tuning.tables import Capability

DIRECTIONS = ("forward", "backward")


class Launch(NamedTuple):
    """A call of a kernel."""

    kernel: Launchable
    config: Config
    args: tuple[Any, ...]


class Observed(NamedTuple):
    """What a call asked and launched."""

    picks: list[tuple[ConfigTable, Point, Config]]
    launches: list[Launch]


@contextlib.contextmanager
def forced(table: ConfigTable, config: Config) -> Iterator[None]:
    """`table` gives `config` inside, whatever it is asked."""

    def pick(*_: Any) -> Config:
        return config

    with mock.patch.object(table, "pick", pick):
        yield


def implementation(op: str, direction: str) -> Any:
    """`jagged.kernels.<op>.<direction>`."""
    return getattr(importlib.import_module(f"jagged.kernels.{op}"), direction)


def observe(
    case: Case, direction: str, capability: Capability = CPU, device: str = "meta"
) -> Observed:
    """What a call on a GPU of this capability asks and launches; no kernel runs."""
    seen = Observed([], [])
    call = implementation(case.op, direction)

    def recorder(table: ConfigTable) -> Any:
        def pick(values: Tensor, width: int, rows: int) -> Config:
            point = point_of(values, width, rows)
            config = table.find(capability, point).config
            seen.picks.append((table, point, config))
            return config

        return pick

    def launch(kernel: Launchable, config: Config, *args: Any) -> None:
        seen.launches.append(Launch(kernel, config, args))

    with contextlib.ExitStack() as stack:
        for table in ConfigTable.known():
            if "pick" not in vars(table):  # else it is forced
                stack.enter_context(mock.patch.object(table, "pick", recorder(table)))
        stack.enter_context(mock.patch.object(Launchable, "__call__", launch))
        call(*case.arguments(direction, device))
    return seen


@dataclass(frozen=True)
class Unit:
    """One table at one point, and the call that is measured for it."""

    table: ConfigTable
    point: Point
    case: Case
    direction: str
    current: Config
    """What the table gives so far."""

    @property
    def name(self) -> str:
        """Of this unit in a run."""
        return f"{self.table} {self.point} {self.case.op} {self.direction}"

    @property
    def key(self) -> str:
        """Of this unit in a journal, where other calls at the same point may be."""
        return f"{self.table} {self.point} {self.direction} of {self.case}"

    def launches(self, config: Config) -> list[Launch]:
        """What the call launches with a config of the table, on meta tensors."""
        with forced(self.table, config):
            seen = observe(self.case, self.direction)
        return [launch for launch in seen.launches if launch.config is config]


def units(cases: Sequence[Case], capability: Capability) -> list[Unit]:
    """The tables and points that the cases need; for a point, the case that is called most."""
    found: dict[tuple[int, Point], Unit] = {}
    for case in sorted(cases, key=lambda case: -case.calls):
        for direction in DIRECTIONS[: 1 + case.backward]:
            seen = observe(case, direction, capability)
            used = {id(launch.config) for launch in seen.launches}
            for table, point, config in seen.picks:
                if id(config) in used and table.space:
                    unit = Unit(table, point, case, direction, config)
                    found.setdefault((id(table), point), unit)
    return list(found.values())
