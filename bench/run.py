"""Measure the ops against the best alternatives: `python -m bench.run`.

Rows are appended to DIR/<gpu>.csv as soon as a case is done, so Ctrl-C and a failing contender
cost nothing that is finished. A contender that takes the CUDA context down (an illegal access)
is noted as such, and the run goes on in a new process.
"""

import argparse
import datetime
import fnmatch
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench import rows as results
from bench.cases import CASES, Case
from bench.check import DTYPES
from bench.limits import measure_limits
from bench.measure import MODES, Fatal, Session, call_costs, describe, measure, reference_costs
from bench.report import table
from bench.rows import Row
from bench.shapes import Shape
from jagged.tuning.timing import Stopwatch

_QUICK_COMPILE_SECONDS = 130.0


@dataclass(frozen=True)
class Step:
    """One thing to do: a case, or with no shape the cost of a call."""

    case: Case
    shape: Shape | None
    dtype: torch.dtype | None

    @property
    def name(self) -> str:
        if self.shape is None:
            return f"{self.case.op} call"
        return f"{self.case.op} {self.shape.name} {str(self.dtype)[6:]}"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    several = {"action": "extend", "nargs": "+", "default": []}
    parser.add_argument("--op", choices=sorted(CASES), help="only these ops", **several)  # type: ignore[arg-type]
    parser.add_argument("--shape", help="only shapes of these names (patterns: 'mean*')", **several)  # type: ignore[arg-type]
    parser.add_argument(
        "--dtype",
        choices=sorted(DTYPES),
        help="these dtypes in place of each shape's own",
        **several,  # type: ignore[arg-type]
    )
    parser.add_argument("--mode", choices=(*MODES, "call"), help="only these modes", **several)  # type: ignore[arg-type]
    parser.add_argument("--provider", help="only providers of these names (patterns)", **several)  # type: ignore[arg-type]
    parser.add_argument("--quick", action="store_true", help="all ops, one shape each, one dtype")
    parser.add_argument("--cpu", action="store_true", help="on the CPU, on small shapes")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument(
        "--budget-ms", type=float, help="sampling time of a contender (GPU: 100, CPU: 20)"
    )
    parser.add_argument(
        "--out", type=Path, help="folder of the CSV (GPU: bench/results; CPU: none)"
    )
    parser.add_argument("--commit", help="what to call this state (default: the commit of git)")
    parser.add_argument("--list", action="store_true", help="print the cases and measure nothing")
    parser.add_argument("--resume", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.cpu and not options.list and not torch.cuda.is_available():
        parser.error("there is no CUDA device: give --cpu to measure the CPU on small shapes")
    if not options.list and not plan(options):
        parser.error("these ops, shapes and modes have no case: --list prints all there are")
    return options


def plan(options: argparse.Namespace) -> list[Step]:
    """What to measure, in order."""
    steps = []
    modes = options.mode or (*MODES, "call")
    for op, case in CASES.items():
        if options.op and op not in options.op:
            continue
        if set(modes) & set(MODES):
            for shape in _shapes(case, options):
                dtypes = [DTYPES[name] for name in options.dtype] or list(shape.dtypes)
                steps += [
                    Step(case, shape, dtype) for dtype in dtypes[: 1 if options.quick else None]
                ]
        if "call" in modes and (not options.shape or "call" in options.shape):
            steps.append(Step(case, None, None))
    return steps


def _shapes(case: Case, options: argparse.Namespace) -> list[Shape]:
    known = (*case.shapes, case.small)
    if options.shape:
        return [s for s in known if any(fnmatch.fnmatch(s.name, p) for p in options.shape)]
    if options.cpu:
        return [case.small]
    return list(case.shapes[:1] if options.quick else case.shapes)


class Progress:
    """A bar on stderr: how far, what now, how long."""

    def __init__(self, total: int, done: int = 0) -> None:
        self.total = total
        self.done = done
        self._start = time.perf_counter()
        self._width = 0

    def show(self, text: str) -> None:
        share = self.done / max(self.total, 1)
        bar = "#" * round(20 * share)
        minutes, seconds = divmod(int(time.perf_counter() - self._start), 60)
        line = f"[{bar:<20}] {self.done}/{self.total} {minutes}:{seconds:02d} {text}"
        end = "\r" if sys.stderr.isatty() else "\n"
        print(f"{line:<{self._width}}", end=end, file=sys.stderr, flush=True)
        self._width = len(line)

    def step(self) -> None:
        self.done += 1


def perform(session: Session, step: Step) -> Iterator[Row]:
    """The rows of one step; what fails outside a contender becomes a row of its own."""
    try:
        if step.shape is None or step.dtype is None:
            yield from call_costs(session, step.case)
        else:
            yield from measure(session, step.case, step.shape, step.dtype)
    except Fatal:
        raise
    except Exception as error:
        shape = "call" if step.shape is None else step.shape.name
        row = Row(session.machine, step.case.op, "all", shape, str(step.dtype)[6:], "bench")
        session.require_device(row, error)
        yield Row(**{**vars(row), "error": describe(error)})
        if session.device.type == "cuda":
            torch.cuda.empty_cache()


def run(
    session: Session,
    steps: Sequence[Step],
    keep: Callable[[Sequence[Row]], None],
    progress: Progress,
) -> None:
    """Do the steps from where the progress is; `keep` gets the rows of each that is done."""
    for step in steps[progress.done :]:
        progress.show(step.name)
        keep(list(perform(session, step)))
        progress.step()
    progress.show("done")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    steps = plan(options)
    if options.list:
        for step in steps:
            source = "" if step.shape is None else step.shape.source
            print(f"{step.name:<70} {source}")
        return 0
    state: dict[str, Any] = {"done": 0, "broken": {}}
    if options.resume:
        state = json.loads(options.resume)
    date = state.get("date") or datetime.datetime.now(datetime.timezone.utc).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )
    device = torch.device("cpu" if options.cpu else "cuda")
    machine = results.machine(device, options.commit, date)
    folder = options.out or (None if options.cpu else Path(__file__).parent / "results")
    path = None if folder is None else folder / results.file_name(machine)
    finished: list[Row] = []
    if options.resume and path is not None:
        finished = [row for row in results.read([path]) if row.machine == machine]

    def keep(rows: Sequence[Row]) -> None:
        finished.extend(rows)
        if path is not None:
            results.write(path, rows)

    session, new = _session(options, machine, device, state["broken"])
    if not options.resume:
        keep(new)
    progress = Progress(len(steps), state["done"])
    code = 0
    try:
        run(session, steps, keep, progress)
    except KeyboardInterrupt:
        code = 130
    except Fatal as error:
        _restart(arguments, error, {**state, "done": progress.done, "date": date})
    print(table(finished))
    if path is not None:
        print(f"\n{len(finished)} rows in {path}")
    return code


def _session(
    options: argparse.Namespace,
    machine: results.Machine,
    device: torch.device,
    broken: dict[str, str],
) -> tuple[Session, list[Row]]:
    if device.type == "cpu":
        # Threads that wait for each other on a busy machine would measure its other users.
        torch.set_num_threads(1)
    budget = options.budget_ms or (100.0 if device.type == "cuda" else 20.0)
    stopwatch = Stopwatch(device, budget_ms=budget)
    stopwatch.warm()
    limits = measure_limits(stopwatch)
    patterns = options.provider or ["*"]

    def chosen(provider: str) -> bool:
        if options.no_compile and provider == "torch-compile":
            return False
        return any(fnmatch.fnmatch(provider, pattern) for pattern in patterns)

    session = Session(
        machine,
        stopwatch,
        limits,
        [mode for mode in MODES if not options.mode or mode in options.mode],
        chosen,
        broken,
        time.perf_counter() + _QUICK_COMPILE_SECONDS if options.quick else float("inf"),
    )
    return session, [*limits.rows(machine), *reference_costs(session)]


def _restart(arguments: Sequence[str] | None, error: Fatal, state: dict[str, Any]) -> None:
    """Go on in a new process, without the contender that took the device down."""
    broken: dict[str, str] = state["broken"]
    print(f"\n{error}\nthe device context is lost: going on in a new process", file=sys.stderr)
    if error.label in broken:  # not a contender's doing: leave the whole step out
        state["done"] += 1
    state["broken"] = {**broken, error.label: error.reason}
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "--resume" in given:
        place = given.index("--resume")
        del given[place : place + 2]
    sys.stdout.flush()
    os.execv(
        sys.executable,
        [sys.executable, "-m", "bench.run", *given, "--resume", json.dumps(state)],
    )


if __name__ == "__main__":
    sys.exit(main())
