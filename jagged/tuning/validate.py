"""Whether configs fit the kernels as they are now: `python -m jagged.tuning check`.

A config's lists are positional: a loop or a load more in a kernel changes what they mean. Each
config is held against what Helion derives from the kernel's source; nothing is compiled. What no
kernel reads, as its kernel has another name now, does not fit either.
"""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from jagged.tuning import operands, tables
from jagged.tuning.cases import HEADS, Case
from jagged.tuning.configs import Config, ConfigTable
from jagged.tuning.decision import Point
from jagged.tuning.offline import H200, FakeDevice, bind, misfit, pretend
from jagged.tuning.plan import DIRECTIONS, Launch, Unit

UNUSED = "no call launches a kernel with it"
_DTYPES = {1: torch.int8, 2: torch.bfloat16, 4: torch.float32, 8: torch.int64}
# Calls that ask every table, between them: few rows, many, and attention with a mask of its
# own and with a bias.
_ROWS = (64, 1024)
_OPTIONS: dict[str, tuple[dict[str, int], ...]] = {
    "hstu_attention": ({}, {"window": 1}, {"position": 1, "time": 1}),
}


@dataclass(frozen=True)
class Problem:
    """A config that does not fit; or, without an op, a file or a table that nothing reads."""

    path: Path
    table: str
    point: Point | None
    reason: str
    op: str = ""

    def __str__(self) -> str:
        where = ", ".join(filter(None, (str(self.path), self.table)))
        if self.point is not None:
            where += f" at {self.point}"
        again = f"; tune it again: python -m jagged.tuning tune --op {self.op}" if self.op else ""
        return f"{where}: {self.reason}{again}"


def problems(ops: Sequence[str] = operands.OPS, folder: Path | None = None) -> Iterator[Problem]:
    """The configs of these ops that do not fit their kernels.

    Args:
        ops: of `operands.OPS`.
        folder: whose tables; None for those shipped.

    Raises:
        ValueError: a file is damaged.
    """
    if folder is not None:
        yield from _unread(ops, folder)
    specs: dict[tuple[Any, ...], Any] = {}
    for table, users in _tables(ops).items():
        known = tables.files(table.folder if folder is None else folder, table.stem)
        for path in known.values():
            if table.name in tables.names(path) and not tables.has_points(path, table.name):
                reason = "not checked, as it has no POINTS: jagged.tuning did not write it"
                yield Problem(path, str(table), None, reason)
                continue
            for point, plain in tables.entries(path, table.name).items():
                reason = table.misfit(plain) or _refused(users, table, point, plain, specs)
                if reason:
                    yield Problem(path, str(table), point, reason, users[0])


def _unread(ops: Sequence[str], folder: Path) -> Iterator[Problem]:
    """What a user's folder has and no kernel asks for; of these ops' files, unless all are asked
    about."""
    known: dict[str, list[str]] = {}
    for table in _tables(operands.OPS):
        known.setdefault(table.stem, []).append(table.name)
    files = [path for table in _tables(ops) for path in tables.files(folder, table.stem).values()]
    for path, name in tables.unread(folder, known):
        if set(ops) == set(operands.OPS) or path in files:
            yield Problem(path, name, None, "no kernel of this version reads it")


def _refused(
    users: Sequence[str],
    table: ConfigTable,
    point: Point,
    plain: Mapping[str, Any],
    specs: dict[tuple[Any, ...], Any],
) -> str:
    """Why the kernels that a config launches do not take it, or ""."""
    launches = _launches(users, table, point, table.config(plain))
    reason = "" if launches else UNUSED
    for launch in launches:
        reason = reason or _misfit(launch, specs)
    return reason


def _tables(ops: Sequence[str]) -> dict[ConfigTable, list[str]]:
    """The tables that ops use, and all ops that use them, the given ones first."""
    users: dict[ConfigTable, list[str]] = {}
    for op in (*ops, *(op for op in operands.OPS if op not in ops)):
        for value in vars(importlib.import_module(f"jagged.kernels.{op}")).values():
            if isinstance(value, ConfigTable) and op not in users.setdefault(value, []):
                users[value].append(op)
    return {table: found for table, found in users.items() if found[0] in ops}


def _misfit(launch: Launch, specs: dict[tuple[Any, ...], Any]) -> str:
    """Why a config does not fit the kernel that it is launched with, or ""."""
    # What a config may hold does not depend on sizes and types, nor on compile-time numbers; it
    # does on the form where that is an argument, and on which arguments are None.
    text = [arg for arg in launch.args if isinstance(arg, str)]
    key = (launch.kernel, *text, *(arg is None for arg in launch.args))
    with pretend(H200):
        if key not in specs:
            fake = FakeDevice().arguments(launch.kernel, launch.args)
            try:
                specs[key] = bind(launch.kernel, launch.config, fake).config_spec
            except ValueError as error:
                return str(error)
        reason = misfit(specs[key], launch.config)
    name = launch.kernel.function.__name__
    return f"the config does not fit the kernel {name}: {reason}" if reason else ""


def _launches(
    users: Sequence[str], table: ConfigTable, point: Point, config: Config
) -> list[Launch]:
    """What a call launches with a config, the first that does."""
    itemsize, width, length = point
    for op in users:
        heads = HEADS if op == "hstu_attention" else 1
        for rows in _ROWS:
            shape = operands.Shape(rows, max(1, length), width, heads=heads)
            for options in _OPTIONS.get(op, ({},)):
                case = Case(op, shape, _DTYPES[itemsize], options)
                for direction in DIRECTIONS:
                    launches = Unit(table, point, case, direction, config).launches(config)
                    if launches:
                        return launches
    return []
