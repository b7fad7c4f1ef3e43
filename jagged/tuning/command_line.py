"""`python -m jagged.tuning`: find configs, show where they come from, check them, export ops."""

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from helion.exc import BaseError as HelionError

from jagged.tuning import (
    _arguments,
    cache,
    export,
    helion_runner,
    operands,
    tables,
    tuner,
    validate,
)
from jagged.tuning.cases import Case, default_cases, read_cases
from jagged.tuning.configs import capability_of, use_tables
from jagged.tuning.journal import Journal
from jagged.tuning.plan import DIRECTIONS, observe, units
from jagged.tuning.progress import Progress
from jagged.tuning.search import EFFORTS
from jagged.tuning.tables import Capability
from jagged.tuning.trials import DeviceLost, GpuTrials, Trials

TABLES = Path("tables")  # where tables are written to
INTERRUPTED = 130  # exit status after Ctrl-C, as a shell has it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m jagged.tuning", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_tune(commands)
    _add_show(commands)
    _add_check(commands)
    _add_helion(commands)
    export.register(commands)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except (OSError, ValueError, ImportError, DeviceLost, HelionError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return INTERRUPTED


def _add_tune(commands: Any) -> None:
    parser = commands.add_parser("tune", help="find configs on this GPU and write tables")
    _add_cases(parser)
    parser.add_argument(
        "--effort",
        choices=EFFORTS,
        help="quick climbs to better configs, full tries all (HELION_AUTOTUNE_EFFORT, or quick)",
    )
    parser.add_argument(
        "--budget",
        type=_arguments.seconds,
        default=os.environ.get("HELION_AUTOTUNE_BUDGET_SECONDS") or None,
        metavar="SECONDS",
        help="for all of it (HELION_AUTOTUNE_BUDGET_SECONDS, or no limit)",
    )
    parser.add_argument(
        "--out", type=Path, default=TABLES, help="folder of the tables: %(default)s"
    )
    parser.add_argument("--device", default="cuda", help="where to measure: %(default)s")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes that compile"
    )
    parser.set_defaults(run=_tune)


def _add_show(commands: Any) -> None:
    parser = commands.add_parser("show", help="say which config a call gets, and from where")
    _arguments.add_call(parser)
    parser.set_defaults(run=_show)


def _add_check(commands: Any) -> None:
    parser = commands.add_parser("check", help="say whether tables fit the kernels as they are")
    parser.add_argument("--op", action="append", choices=operands.OPS, help="all if not given")
    parser.add_argument("--tables", type=Path, help="a folder of tables; those shipped if not")
    parser.set_defaults(run=_check)


def _add_helion(commands: Any) -> None:
    parser = commands.add_parser(
        "helion",
        help="call kernels through Helion's tuner, to be run by its aot_runner",
        description=helion_runner.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_cases(parser)
    parser.add_argument(
        "--out", type=Path, default=TABLES, help="folder of the tables: %(default)s"
    )
    parser.add_argument("--device", default="cuda")
    parser.set_defaults(run=_helion, effort="quick")


def _add_cases(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--op", action="append", choices=operands.OPS, help="all if not given")
    given = parser.add_mutually_exclusive_group()
    given.add_argument(
        "--shape",
        action="append",
        type=_arguments.shape,
        help=f"{_arguments.SHAPE}; for each --op",
    )
    given.add_argument("--shapes", type=Path, help='a JSON file {"cases": [{"op", "rows", ...}]}')
    given.add_argument(
        "--from-trace", type=Path, help="what jagged.tuning.trace wrote: as --shapes"
    )
    _arguments.add_kind(parser, "of --shape")


def _cases(options: argparse.Namespace) -> list[Case]:
    """The calls that the command line asks for."""
    ops = options.op or operands.OPS
    path = options.shapes or options.from_trace
    if path is not None:
        cases = [case for case in read_cases(path) if case.op in ops]
        if not cases:
            raise ValueError(f"{path} has no call of {', '.join(ops)}")
        return cases
    if options.shape:
        dtype, numbers = getattr(torch, options.dtype), operands.parse_options(options.option)
        return [Case(op, shape, dtype, numbers) for op in ops for shape in options.shape]
    return [case for op in ops for case in default_cases(op, options.effort)]


def _tune(options: argparse.Namespace) -> int:
    options.effort = options.effort or os.environ.get("HELION_AUTOTUNE_EFFORT") or "quick"
    if options.effort not in EFFORTS:
        raise ValueError(
            f"HELION_AUTOTUNE_EFFORT must be among {list(EFFORTS)} to tune, got {options.effort!r}"
        )
    device, cases = _device(options, "tune"), _cases(options)
    trials = GpuTrials(device, options.workers)
    try:
        return tune(cases, trials, options.out, options.effort, options.budget)
    finally:
        trials.close()


def _device(options: argparse.Namespace, command: str) -> torch.device:
    """The GPU of `--device`."""
    if not torch.cuda.is_available():
        raise ValueError(f"{command} measures on a CUDA device, and there is none here")
    last = torch.cuda.device_count() - 1
    with contextlib.suppress(RuntimeError):  # of a text that names no device
        device = torch.device(options.device)
        if device.type == "cuda" and (device.index or 0) <= last:
            return device
    raise ValueError(
        f"--device must be a GPU of this machine, cuda:0 to cuda:{last}, got {options.device}"
    )


def tune(
    cases: Sequence[Case],
    trials: Trials,
    folder: Path,
    effort: str,
    budget: float | None = None,
) -> int:
    """Tune the tables that `cases` need, write them to `folder`, and print what changed.

    What `folder` has already is where the search starts from, as far as it fits the kernels.
    """
    tables.require_writable(folder / "journal.jsonl")
    cache.require_writable()
    for path, count in tuner.leave_out_misfits({case.op for case in cases}, folder).items():
        print(f"left out {count} configs of {path} that do not fit the kernels as they are")
    if tables.any_in(folder):
        use_tables(folder)
    todo = units(cases, trials.capability)
    tuner.require_writable(todo, folder, trials.capability)
    with Journal(folder / "journal.jsonl", tuner.facts(trials)) as journal:
        if len(journal):
            print(f"{len(journal)} measurements are in {journal.path} already")
        run = tuner.Tuner(trials, journal, effort, budget)
        progress = Progress(len(todo))
        outcomes = run.run(todo, progress)
        progress.close()
        for path in tuner.write(outcomes, folder, trials.capability):
            print(f"wrote {path}")
    _print_outcomes(outcomes)
    return INTERRUPTED if run.interrupted else 0


def _print_outcomes(outcomes: Sequence[tuner.Outcome]) -> None:
    print(f"{'table':36} {'point':>18} {'before ms':>10} {'after ms':>10} {'gain':>6}  config")
    for outcome in outcomes:
        unit = outcome.unit
        row = f"{unit.table!s:36} {unit.point!s:>18}"
        if outcome.chosen is None:
            print(f"{row} {'-':>10} {'-':>10} {'-':>6}  not measured")
            continue
        gain = f"{outcome.before / outcome.after:.2f}x" if outcome.before < math.inf else "new"
        print(f"{row} {outcome.before:10.4f} {outcome.after:10.4f} {gain:>6}  {outcome.chosen}")


def _show(options: argparse.Namespace) -> int:
    if options.tables is not None:
        use_tables(options.tables)
    capability = options.capability or _here()
    case = Case(
        options.op,
        options.shape,
        getattr(torch, options.dtype),
        operands.parse_options(options.option),
    )
    print(f"{case}, compute capability {capability[0]}.{capability[1]}")
    for direction in DIRECTIONS:
        for table, point, config in observe(case, direction, capability).picks:
            found = table.find(capability, point)
            print(f"{direction}: {table} at {point} (itemsize, width, length)")
            print(f"  from {_SOURCES[found.source]}: {found.path}")
            print(f"  {config.as_dict()}")
    return 0


_SOURCES = {
    "user": "your table",
    "shipped": "the shipped table for this GPU",
    "older": "the shipped table of the nearest older GPU",
    "default": "the oldest shipped table, since there is none for such an old GPU",
}


def _check(options: argparse.Namespace) -> int:
    if options.tables is not None and not tables.any_in(options.tables):
        raise ValueError(f"there are no tables in {options.tables}")
    found = list(validate.problems(options.op or operands.OPS, options.tables))
    for problem in found:
        print(problem)
    print(
        f"{len(found)} configs or tables do not fit" if found else "all configs fit their kernels"
    )
    return 1 if found else 0


def _helion(options: argparse.Namespace) -> int:
    device = _device(options, "helion")
    cases = [replace(case, calls=1) for case in _cases(options)]
    count = helion_runner.run(cases, capability_of(device), options.out, options.device)
    if not count:
        raise ValueError("none of these ops has a table that Helion's tuner can fill")
    return 0


def _here() -> Capability:
    if not torch.cuda.is_available():
        raise ValueError("there is no GPU here: say which one with --capability")
    return capability_of(torch.device("cuda", torch.cuda.current_device()))
