"""Calls of kernels through Helion's own tuner, for its `aot_runner` to run:

    python -m helion.autotuner.aot_runner --output-dir DIR -- \\
        python -m jagged.tuning helion --op to_padded --out tables

Helion then searches its whole space, layouts and load policies included, where our tuner tries what
the kernel file names. It takes kernels whose configs have neither form nor constants, that is, with
one kernel for each table. Their source is copied to the folder `--out`, since Helion writes beside
the source; what it writes there, `_helion_aot_<stem>_cuda_sm<NN>.py`, is found with
HELION_HEURISTIC_DIR=tables or `use_tables("tables")`.

Helion's configs have a value for each load of a kernel, so they serve calls with the same optional
arguments (weights, biases, offsets) as the calls that were tuned, and no others.
"""

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import helion
import torch

from jagged.tuning.cases import Case
from jagged.tuning.decision import Point
from jagged.tuning.launch import Launchable
from jagged.tuning.plan import Launch, Unit, observe, units
from jagged.tuning.tables import Capability, module_from


def tunable(cases: Sequence[Case], capability: Capability) -> list[Unit]:
    """What of the cases Helion can tune: tables of one kernel, configs of settings alone."""
    return [
        unit
        for unit in units(cases, capability)
        if unit.current.as_dict() == unit.current.settings and _launch(unit) is not None
    ]


def run(cases: Sequence[Case], capability: Capability, folder: Path, device: str) -> int:
    """Call each kernel once as an AOT kernel of Helion's; how many calls were made."""
    found = tunable(cases, capability)
    current: list[Point] = []
    kernels: dict[str, Any] = {}
    for unit in found:
        launch = _launch(unit, capability, device)
        assert launch is not None
        current[:] = [unit.point]
        name = f"{unit.table.stem}.{unit.table.name}"
        if name not in kernels:
            copy = copied(launch.kernel, folder)
            kernels[name] = aot_kernel(copy, lambda *_: current[0])
        print(f"{unit.name}: {unit.case}")
        kernels[name](*launch.args)
    return len(found)


def aot_kernel(kernel: Launchable, key: Callable[..., Point]) -> Any:
    """A kernel as Helion's `aot_kernel`, with the features of our tables as its key."""
    options: dict[str, Any] = {"index_dtype": torch.int32}
    if kernel.dot:
        options["dot_precision"] = "ieee"
    return helion.aot_kernel(kernel.function, key=key, **options)


def copied(kernel: Launchable, folder: Path) -> Launchable:
    """The kernel, from a copy of its file in `folder`."""
    source = Path(kernel.function.__code__.co_filename)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / source.name
    shutil.copyfile(source, path)
    name = f"jagged_tuning_copy_{source.stem}"
    if name not in sys.modules:
        module_from(path, name, importable=True)
    found: Launchable = getattr(sys.modules[name], kernel.function.__name__)
    return found


def _launch(
    unit: Unit, capability: Capability | None = None, device: str = "meta"
) -> Launch | None:
    """The launch of the kernel that a unit's table is named after, in the table's file."""
    if capability is None:
        launches = unit.launches(unit.current)
    else:
        launches = observe(unit.case, unit.direction, capability, device).launches
    for launch in launches:
        function = launch.kernel.function
        source = Path(function.__code__.co_filename)
        if (function.__name__, source.stem) == (unit.table.name, unit.table.stem):
            return launch
    return None
