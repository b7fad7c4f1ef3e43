"""Trying configs: does one fit, is it right, how long does it take.

`Trials` is all that the tuner knows of a GPU; tests put a cost function in its place.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from jagged.tuning import plan
from jagged.tuning.cases import Case
from jagged.tuning.configs import Config, ConfigTable
from jagged.tuning.offline import Target, compile_kernel
from jagged.tuning.plan import Unit
from jagged.tuning.tables import Capability
from jagged.tuning.timing import Stopwatch

ACCURACY = 4.0
"""The error may be this many times that of plain torch in the same dtype plus one eps."""
_SMALLER = (16, 64, 256, 1024)  # rows of the call that is checked, where that launches the same


class Fit(NamedTuple):
    """What compiling a config for the target gave."""

    stack: int = 0
    """Bytes of registers that spill, a thread."""
    shared: int = 0
    """Bytes of shared memory."""
    error: str = ""
    """Why it does not compile."""


class Trials(Protocol):
    """What the tuner asks about configs."""

    hardware: str
    capability: Capability
    shared_memory: int

    def fits(self, unit: Unit, configs: Sequence[Config]) -> list[Fit]:
        """Compile each for the target, without running it."""
        ...

    def check(self, unit: Unit, config: Config) -> str:
        """Run the unit's call with a config and compare with float64: why it is wrong, or "".

        Raises:
            Unmeasurable: there is no such call.
        """
        ...

    def times(self, unit: Unit, configs: Sequence[Config]) -> list[float | str]:
        """Milliseconds of the call with each of these configs, or why there are none."""
        ...


class DeviceLost(RuntimeError):
    """A config made the GPU unusable for this process."""

    def __init__(self, message: str, config: Config | None = None) -> None:
        super().__init__(message)
        self.config = config  # None where it is not known which


class Unmeasurable(ValueError):
    """A unit's call cannot be made here, whatever the config: for want of memory, say."""


class GpuTrials:
    """Configs tried on a CUDA device.

    Args:
        device: where they run.
        workers: processes that compile.
        sample_ms: how long each config is timed.
    """

    def __init__(self, device: torch.device, workers: int, sample_ms: float = 40.0) -> None:
        # Not by fork, and not by a server that forks: compiling asks the driver, which answers
        # nothing in a process that was forked after the first question to it.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_tidily)
        # All start now, as each imports torch first. What they inherit holds from their first
        # moment: Ctrl-C is for the process that measures.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            for _ in range(workers):
                self._pool.submit(os.getpid)
        finally:
            signal.signal(signal.SIGINT, handler)
        self._target = Target.of(device)
        self.hardware = self._target.name
        self.capability = self._target.capability
        self.shared_memory = self._target.shared_memory
        self._device = device
        self._stopwatch = Stopwatch(device, budget_ms=sample_ms, fewest=5)
        self._stopwatch.warm()
        self._unit: Unit | None = None
        self._args: tuple[Any, ...] = ()
        self._checked: _Checked | None = None

    def close(self) -> None:
        """End the processes that compile, whatever they are at."""
        for process in list(self._pool._processes.values()):
            process.terminate()
        self._pool.shutdown(cancel_futures=True)

    def fits(self, unit: Unit, configs: Sequence[Config]) -> list[Fit]:
        tasks = [
            (unit.table.stem, unit.table.name, unit.case, unit.direction, config, self._target)
            for config in configs
        ]
        try:
            return list(self._pool.map(compiled, *zip(*tasks, strict=True)))
        except BrokenProcessPool as error:
            raise ChildProcessError(
                "a process that compiles was killed, perhaps for want of memory: start the run "
                "again, perhaps with fewer --workers; it goes on where it ended"
            ) from error

    def check(self, unit: Unit, config: Config) -> str:
        self._enter(unit)
        assert self._checked is not None
        call = plan.implementation(unit.case.op, unit.direction)
        try:
            with plan.forced(unit.table, config):
                found = call(*self._checked.args)
            wrong = differs(found, self._checked.exact, self._checked.plain)
            torch.cuda.synchronize(self._device)
        except Exception as error:
            self._alive(config)
            return _first_line(error)
        return wrong

    def times(self, unit: Unit, configs: Sequence[Config]) -> list[float | str]:
        self._enter(unit)
        call = plan.implementation(unit.case.op, unit.direction)

        def with_config(config: Config) -> Any:
            def run() -> None:
                with plan.forced(unit.table, config):
                    call(*self._args)

            return run

        for config in configs:  # alone, with all rows, which `check` had not
            with contextlib.suppress(Exception):  # it is met again, and told, below
                with_config(config)()
            self._alive(config)
        found = self._stopwatch.compare([with_config(config) for config in configs])
        self._alive()
        return [_first_line(one) if isinstance(one, Exception) else one.p50 for one in found]

    def _alive(self, config: Config | None = None) -> None:
        """Nothing runs in this process after an illegal access, and all would be blamed for one."""
        try:
            torch.cuda.synchronize(self._device)
        except Exception as lost:
            what = "a call" if config is None else config
            without = "" if config is None else ", it goes on without it"
            message = f"{what} broke the GPU's context: start the run again{without}"
            raise DeviceLost(f"{message} ({_first_line(lost)})", config) from lost

    def _enter(self, unit: Unit) -> None:
        """Make the tensors of a unit's call, once while it is the unit that is asked about."""
        if self._unit is unit:
            return
        self._unit = self._checked = None
        self._args = ()
        torch.manual_seed(0)
        try:
            self._args = unit.case.arguments(unit.direction, str(self._device))
            self._checked = _Checked.of(unit, str(self._device))
        except Exception as error:
            self._args = ()
            self._alive()
            raise Unmeasurable(_first_line(error)) from error
        self._unit = unit


class _Checked(NamedTuple):
    """A call whose result is known."""

    args: tuple[Any, ...]
    exact: tuple[Tensor, ...]
    plain: tuple[Tensor, ...]

    @classmethod
    def of(cls, unit: Unit, device: str) -> "_Checked":
        args = smaller(unit).arguments(unit.direction, device)
        return cls(args, *references(unit, args))


def references(unit: Unit, args: tuple[Any, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """What `jagged.eager` gives in float64, and in the dtype of the arguments."""
    eager = getattr(importlib.import_module(f"jagged.eager.{unit.case.op}"), unit.direction)
    wide = tuple(
        arg.double() if isinstance(arg, Tensor) and arg.is_floating_point() else arg for arg in args
    )
    return _as_tuple(eager(*wide)), _as_tuple(eager(*args))


def smaller(unit: Unit) -> Case:
    """The unit's call with as few rows as launch the same kernels with its config."""
    launched = [launch.kernel for launch in unit.launches(unit.current)]
    for rows in _SMALLER:
        if rows < unit.case.shape.rows:
            case = replace(unit.case, shape=replace(unit.case.shape, rows=rows))
            few = replace(unit, case=case).launches(unit.current)
            if [launch.kernel for launch in few] == launched:
                return case
    return unit.case


def differs(found: Any, exact: tuple[Tensor, ...], plain: tuple[Tensor, ...]) -> str:
    """How the results of a call are wrong, or ""."""
    for i, (ours, right, easy) in enumerate(zip(_as_tuple(found), exact, plain, strict=True)):
        if ours.shape != right.shape or ours.dtype != easy.dtype:
            return f"result {i} is {ours.dtype} {tuple(ours.shape)}, not {tuple(right.shape)}"
        if not ours.is_floating_point():
            if not torch.equal(ours, easy):
                return f"result {i} differs"
            continue
        if ours.numel() == 0:
            continue
        eps = torch.finfo(ours.dtype).eps
        error, usual = (ours.double() - right).abs(), (easy.double() - right).abs()
        for name, size in (("norm", torch.Tensor.norm), ("largest", torch.Tensor.max)):
            budget = ACCURACY * (size(usual) + eps * size(right.abs()))
            if not bool(size(error) <= budget):  # a NaN is not
                return f"result {i} is wrong: {name} error {size(error):.1e}, allowed {budget:.1e}"
    return ""


def compiled(
    stem: str, name: str, case: Case, direction: str, config: Config, target: Target
) -> Fit:
    """Compile what a call launches with a config, for a GPU that need not be there."""
    plan.implementation(case.op, direction)  # so that its tables are known
    table = next(t for t in ConfigTable.known() if (t.stem, t.name) == (stem, name))
    unit = Unit(table, (0, 0, 0), case, direction, config)
    try:
        made = [
            cubin for launch in unit.launches(config) for cubin in compile_kernel(*launch, target)
        ]
    except Exception as error:
        return Fit(error=_first_line(error))
    if not made:
        return Fit(error="the call launches another kernel with it")
    return Fit(max(one.stack for one in made), max(one.shared for one in made))


def _end_tidily() -> None:
    """When terminated, release what multiprocessing would warn of."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())


def _as_tuple(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def _first_line(error: BaseException) -> str:
    text = str(error).strip().split("\n", 1)[0][:200]
    return f"{type(error).__name__}: {text}"
