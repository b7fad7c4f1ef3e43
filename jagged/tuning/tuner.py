"""The tuner: from units to tables.

At every point configs are searched for (`search`); then the best of each point are measured at the
other points of their table too, and the table keeps the fewest that serve all (`cover`). A config
is compiled for the target first, and dropped where it does not fit, spills more than what the table
has, or is wrong against float64; then it is timed against the others. All of it is in the journal
before the next begins.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from jagged import kernels
from jagged.tuning import cache, tables, validate
from jagged.tuning.configs import Config, ConfigTable
from jagged.tuning.cover import SLACK, allowed, smallest_cover
from jagged.tuning.journal import Journal
from jagged.tuning.plan import Unit
from jagged.tuning.progress import Progress
from jagged.tuning.search import CHUNK, Measured, Plain, key_of, search
from jagged.tuning.tables import Entries
from jagged.tuning.trials import DeviceLost, Trials, Unmeasurable

FIRST = 0.7  # of the time goes to the searches, the rest to measuring their bests everywhere
FINALISTS = 4  # of a point, that are measured at the others


@dataclass
class Outcome:
    """What was found for a unit."""

    unit: Unit
    measured: Measured = field(default_factory=Measured)
    chosen: Plain | None = None
    """What the table is to have; None where nothing was measured or nothing runs."""

    def time(self, config: Plain) -> float:
        """Milliseconds, inf where it was not measured or does not run."""
        return self.measured.times.get(key_of(config), math.inf)

    @property
    def before(self) -> float:
        return self.time(self.unit.current.as_dict())

    @property
    def after(self) -> float:
        return math.inf if self.chosen is None else self.time(self.chosen)


class Tuner:
    """One run.

    Args:
        trials: what tries configs.
        journal: of this run, or one that it goes on from.
        effort: one of `search.EFFORTS`.
        budget: seconds; None for as long as it takes.
        clock: seconds.
    """

    def __init__(
        self,
        trials: Trials,
        journal: Journal,
        effort: str,
        budget: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trials = trials
        self._journal = journal
        self._effort = effort
        self._clock = clock
        self._begin = clock()
        self._end = math.inf if budget is None else self._begin + budget
        self._results: dict[str, dict[str, float | str]] = {}  # of each unit's configs
        self._spills: dict[str, int] = {}  # of what the tables have
        self._unmeasurable: dict[str, str] = {}  # units whose call cannot be made, and why
        self.interrupted = False
        """Whether the user stopped the run."""

    def run(self, units: Sequence[Unit], progress: Progress) -> list[Outcome]:
        """Search for every unit, and choose. Ctrl-C ends the searches, not the choice."""
        outcomes: list[Outcome] = []
        first = self._begin + FIRST * (self._end - self._begin) if self._end < math.inf else None
        try:
            for done, unit in enumerate(units):
                outcomes.append(Outcome(unit))
                now, left = self._clock(), len(units) - done
                until = math.inf if first is None else now + max(0.0, first - now) / left
                progress.show(done, f"{unit.name}: {unit.case}", first)
                try:
                    self._search(outcomes[-1], until)
                except Unmeasurable as error:
                    self._unmeasurable[unit.name] = str(error)
                progress.show(done + 1, self._said(outcomes[-1]), first)
            for group in by_table(outcomes):
                self._measure_everywhere(group)
        except KeyboardInterrupt:
            self.interrupted = True
        for group in by_table(outcomes):
            choose(group)
        return outcomes

    def _search(self, outcome: Outcome, until: float) -> None:
        """Fill `outcome.measured`, from what earlier runs on such a GPU found, if they did."""
        unit = outcome.unit
        known = [config.as_dict() for config in shipped_configs(unit, self._trials.capability)]
        start = [unit.current.as_dict(), *known]

        def find(earlier: list[Config]) -> tuple[Config, float]:
            search(
                outcome.measured,
                unit.table.space,
                unit.point,
                [start[0], *(config.as_dict() for config in earlier), *start[1:]],
                self._effort,
                partial(self._measure, unit, until=until),
                lambda: self._clock() >= until,
            )
            best = outcome.measured.best()
            time = outcome.measured.times[best]
            if self._clock() >= until or time == math.inf:
                raise _Unfinished  # not to be remembered as the best there is
            return Config.from_dict(outcome.measured.configs[best]), 1e3 * time

        try:
            point = (*unit.point, self._effort)
            found = cache.best(str(unit.table), point, find, self._trials.hardware)
        except _Unfinished:
            return
        measure = partial(self._measure, unit, until=until)
        outcome.measured.add([start[0], found.as_dict()], measure)

    def _said(self, outcome: Outcome) -> str:
        """A line about a unit's search."""
        name, times = outcome.unit.name, [time for time in _times(outcome) if time < math.inf]
        if name in self._unmeasurable:
            return f"{name} cannot be measured: {self._unmeasurable[name]}"
        if not times:
            reasons = [r for r in self._results.get(name, {}).values() if isinstance(r, str)]
            return f"{name}: no config runs ({reasons[0] if reasons else 'no time'})"
        return (
            f"{name}: {min(times):.4f} ms, was {outcome.before:.4f}, "
            f"{len(times)} of {len(outcome.measured.times)} configs run"
        )

    def _measure_everywhere(self, group: Sequence[Outcome]) -> None:
        """Time the best configs of each point at the other points of the table."""
        configs = {key_of(c): c for other in group for c in finalists(other)}
        for outcome in group:
            if outcome.unit.name in self._unmeasurable:
                continue
            measure = partial(self._measure, outcome.unit, until=self._end)
            outcome.measured.add(configs.values(), measure)

    def _measure(self, unit: Unit, configs: Sequence[Plain], until: float) -> list[float | None]:
        """Milliseconds of configs, inf for those that were dropped; None where time was up."""
        found = self._results.setdefault(unit.name, {})
        for begin in range(0, len(configs), CHUNK):
            chunk = {key_of(config): config for config in configs[begin : begin + CHUNK]}
            for key in chunk:
                known = self._journal.get(unit.key, key)
                if known is not None:
                    found[key] = known
            self._try({key: chunk[key] for key in chunk if key not in found}, unit, until, found)
        results = [found.get(key_of(config)) for config in configs]
        return [math.inf if isinstance(result, str) else result for result in results]

    def _try(
        self, chunk: dict[str, Plain], unit: Unit, until: float, found: dict[str, float | str]
    ) -> None:
        """Measure configs that the journal does not have."""
        current = key_of(unit.current.as_dict())
        # What the table has is measured whatever the time: there is nothing to compare with else.
        if self._clock() >= until:
            chunk = {key: config for key, config in chunk.items() if key == current}
        if not chunk:
            return
        configs = {key: unit.table.config(config) for key, config in chunk.items()}
        first = [] if unit.name in self._spills else [unit.current]
        fits = self._trials.fits(unit, [*first, *configs.values()])
        if first:
            self._spills[unit.name] = fits.pop(0).stack
        most = self._spills[unit.name]
        ready: dict[str, Config] = {}
        for (key, config), fit in zip(configs.items(), fits, strict=True):
            if self._clock() >= until and key != current:
                continue
            wrong = fit.error
            if fit.shared > self._trials.shared_memory:
                wrong = f"needs {fit.shared} bytes of shared memory"
            elif fit.stack > most:
                wrong = f"spills {fit.stack} bytes"
            with self._blaming(unit, {key: config}):
                wrong = wrong or self._trials.check(unit, config)
            if wrong:
                found[key] = wrong
                self._journal.put(unit.key, key, wrong)
            else:
                ready[key] = config
        if ready:
            with self._blaming(unit, ready):
                times = self._trials.times(unit, list(ready.values()))
            for key, result in zip(ready, times, strict=True):
                found[key] = result
                self._journal.put(unit.key, key, result)

    @contextmanager
    def _blaming(self, unit: Unit, configs: Mapping[str, Config]) -> Iterator[None]:
        """Where one of these breaks the GPU nothing runs in this process any more, but the next one
        knows why."""
        try:
            yield
        except DeviceLost as lost:
            for key, config in configs.items():
                if lost.config is config:
                    self._journal.put(unit.key, key, str(lost))
            raise


class _Unfinished(Exception):
    """A search ended before its end."""


def shipped_configs(unit: Unit, capability: tuple[int, int]) -> list[Config]:
    """The configs that the unit's table has at its other points of this item size."""
    path = unit.table.find(capability, unit.point).path
    if not tables.has_points(path, unit.table.name):
        return []
    found = tables.entries(path, unit.table.name)
    return [unit.table.config(found[point]) for point in found if point[0] == unit.point[0]]


def by_table(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """The outcomes of each table."""
    groups: dict[int, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(id(outcome.unit.table), []).append(outcome)
    return list(groups.values())


def finalists(outcome: Outcome) -> list[Plain]:
    """The best configs of a point that are about as good as the best, and what the table had."""
    times = outcome.measured.times
    ranked = sorted((time, key) for key, time in times.items() if time < math.inf)
    near = [key for time, key in ranked[:FINALISTS] if time <= SLACK * ranked[0][0]]
    return [*(outcome.measured.configs[key] for key in near), outcome.unit.current.as_dict()]


def choose(group: Sequence[Outcome]) -> None:
    """Set `chosen` of the points of one table: the best of the fewest configs that serve them."""
    group = [outcome for outcome in group if any(t < math.inf for t in _times(outcome))]
    configs = {key_of(c): c for outcome in group for c in finalists(outcome)}
    times = [[outcome.time(config) for config in configs.values()] for outcome in group]
    places = {key: place for place, key in enumerate(configs)}
    currents = [places[key_of(outcome.unit.current.as_dict())] for outcome in group]
    limits = [allowed(row, current) for row, current in zip(times, currents, strict=True)]
    kept = smallest_cover(times, limits)
    plain = list(configs.values())
    for outcome, row in zip(group, times, strict=True):
        outcome.chosen = plain[min(kept, key=lambda i: row[i])]


def leave_out_misfits(ops: Iterable[str], folder: Path) -> dict[Path, int]:
    """Take configs out of a folder's tables that were tuned for other kernels: how many, by file.

    A config that no call launches stays: it does no harm.
    """
    found = [
        problem
        for problem in validate.problems(sorted(ops), folder)
        if problem.point is not None and problem.reason != validate.UNUSED
    ]
    gone = {(problem.path, problem.table, problem.point) for problem in found}
    counts = Counter(problem.path for problem in found)
    for path in counts:
        stem, capability = tables.parts_of(path)
        kept = {
            name: {
                point: config
                for point, config in tables.entries(path, name).items()
                if (path, f"{stem}.{name}", point) not in gone
            }
            for name in tables.names(path)
        }
        tables.replace(path.parent, stem, capability, {k: v for k, v in kept.items() if v})
    return dict(counts)


def require_writable(units: Sequence[Unit], folder: Path, capability: tuple[int, int]) -> None:
    """Refuse a folder whose files `write` could not add to, before anything is measured.

    Raises:
        ValueError: a file there was not written by `jagged.tuning`.
    """
    for stem in {unit.table.stem for unit in units}:
        path = folder / tables.file_name(stem, capability)
        for name in tables.names(path) if path.exists() else ():
            tables.entries(path, name)


def write(outcomes: Sequence[Outcome], folder: Path, capability: tuple[int, int]) -> list[Path]:
    """Write the tables with what was chosen; points that were not tuned keep their configs."""
    written = []
    files: dict[str, dict[str, Entries]] = {}
    for group in by_table(outcomes):
        chosen = {o.unit.point: dict(o.chosen) for o in group if o.chosen is not None}
        if not chosen:
            continue
        table = group[0].unit.table
        files.setdefault(table.stem, {})[table.name] = _before(table, folder, capability) | chosen
    for stem, new in files.items():
        written.append(tables.write(folder, stem, capability, new))
    return written


def facts(trials: Trials) -> dict[str, Any]:
    """What measurements depend on: the GPU, the versions, and the kernels' source."""
    return {
        "hardware": trials.hardware,
        **{name: metadata.version(name) for name in ("torch", "triton", "helion")},
        "kernels": cache.digest(Path(kernels.__path__[0]).rglob("*.py")),
    }


def _before(table: ConfigTable, folder: Path, capability: tuple[int, int]) -> Entries:
    """The points that a table has now: of the file that is written to, else of what is used."""
    path = folder / tables.file_name(table.stem, capability)
    if path.exists() and table.name in tables.names(path):
        return tables.entries(path, table.name)
    used = table.find(capability, (2, 1, 1)).path
    return tables.entries(used, table.name) if tables.has_points(used, table.name) else {}


def _times(outcome: Outcome) -> list[float]:
    return list(outcome.measured.times.values())
