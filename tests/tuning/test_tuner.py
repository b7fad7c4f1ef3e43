"""A whole run with costs in place of a GPU: what is found, kept, written, and resumed."""

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from jagged.kernels import sum as row_sum
from jagged.tuning import command_line, tables, tuner
from jagged.tuning.cases import Case
from jagged.tuning.configs import Config, use_tables
from jagged.tuning.journal import Journal
from jagged.tuning.operands import Shape
from jagged.tuning.plan import Unit, units
from jagged.tuning.progress import Progress
from jagged.tuning.trials import DeviceLost
from jagged.tuning.tuner import Outcome, Tuner
from tests.tuning.trials import CostTrials, blocks, cost, warps

TABLE = row_sum.BACKWARD
CASES = [Case("dense_add", Shape(2**14 // length, length, 32)) for length in (32, 256)]
CASES_SUM = [Case("sum", Shape(2**14 // length, length, 32)) for length in (32, 256)]


@pytest.fixture(autouse=True)
def own_folder() -> Iterator[None]:
    yield
    use_tables(None)


def run(
    trials: CostTrials, folder: Path, cases: list[Case] = CASES_SUM, budget: float | None = None
) -> tuple[Tuner, list[Outcome]]:
    todo = [unit for unit in units(cases, trials.capability) if unit.table is TABLE]
    with Journal(folder / "journal.jsonl", {"hardware": trials.hardware}) as journal:
        made = Tuner(trials, journal, "quick", budget, trials.clock)
        return made, made.run(todo, Progress(len(todo), io.StringIO(), trials.clock))


def test_every_point_gets_what_is_best_there(tmp_path: Path) -> None:
    _, outcomes = run(CostTrials(), tmp_path)
    assert [outcome.unit.point for outcome in outcomes] == [(2, 32, 32), (2, 32, 256)]
    chosen = [TABLE.config(outcome.chosen or {}) for outcome in outcomes]
    assert [warps(config) for config in chosen] == [1, 8]
    for outcome, config in zip(outcomes, chosen, strict=True):
        assert outcome.after == cost(outcome.unit, config) <= outcome.before
        assert config.settings["block_sizes"] == [32, 32]


def test_what_does_not_fit_or_is_wrong_is_never_timed(tmp_path: Path) -> None:
    trials = CostTrials()
    run(trials, tmp_path)
    for _, config in trials.timed:
        assert not {8, 16, 256} & set(blocks(config))
    journal = (tmp_path / "journal.jsonl").read_text()
    for reason in ("result 0 is wrong", "needs 2000 bytes of shared memory"):
        assert reason in journal


def test_what_the_table_has_need_not_run(tmp_path: Path) -> None:
    (unit, *_) = (u for u in units(CASES_SUM, (9, 9)) if u.table is TABLE)
    known = tuner.shipped_configs(unit, (9, 9))
    only = TABLE.config(unit.current.as_dict())
    trials = CostTrials(broken=only)
    _, outcomes = run(trials, tmp_path, CASES_SUM[:1])
    assert only in known
    assert outcomes[0].before == math.inf
    assert warps(TABLE.config(outcomes[0].chosen or {})) == 1


def test_a_run_goes_on_where_another_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = CostTrials()
    run(first, tmp_path)
    monkeypatch.setenv("HELION_SKIP_CACHE", "1")
    second = CostTrials()
    _, outcomes = run(second, tmp_path)
    assert (second.timed, second.checked) == ([], 0)
    assert all(outcome.chosen is not None for outcome in outcomes)


def test_what_was_measured_for_another_call_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the same point, but with a hundred times the rows, say."""
    monkeypatch.setenv("HELION_SKIP_CACHE", "1")
    run(CostTrials(), tmp_path, [Case("sum", Shape(4, 256, 32))])
    trials = CostTrials()
    run(trials, tmp_path, [Case("sum", Shape(400, 256, 32))])
    assert trials.timed


def test_a_run_goes_on_without_a_config_that_broke_the_gpu(tmp_path: Path) -> None:
    (unit, *_) = (u for u in units(CASES_SUM, (9, 9)) if u.table is TABLE)
    trials = CostTrials(broken=TABLE.config(unit.current.as_dict()), loses_device=True)
    with pytest.raises(DeviceLost, match="broke the GPU's context"):
        run(trials, tmp_path, CASES_SUM[:1])
    _, (outcome,) = run(trials, tmp_path, CASES_SUM[:1])
    assert outcome.before == math.inf
    assert outcome.after < math.inf


def test_a_config_that_breaks_the_gpu_while_timed_is_not_timed_again(tmp_path: Path) -> None:
    """Its check, of fewer rows, was fine."""
    (unit, *_) = (u for u in units(CASES_SUM, (9, 9)) if u.table is TABLE)
    bad = TABLE.config(unit.current.as_dict())

    class Breaks(CostTrials):
        def times(self, unit: Unit, configs: Sequence[Config]) -> list[float | str]:
            if bad in configs:
                raise DeviceLost("broke the GPU's context", bad)
            return super().times(unit, configs)

    with pytest.raises(DeviceLost):
        run(Breaks(), tmp_path, CASES_SUM[:1])
    _, (outcome,) = run(Breaks(), tmp_path, CASES_SUM[:1])
    assert (outcome.before, outcome.after < math.inf) == (math.inf, True)


def test_what_was_found_on_such_a_gpu_is_not_searched_for_again(
    tmp_path: Path, folder: Path
) -> None:
    run(CostTrials(), tmp_path / "one")
    trials = CostTrials()
    _, outcomes = run(trials, tmp_path / "two")
    assert len(trials.timed) <= 6  # what the table had, what is remembered, at either point
    assert [warps(TABLE.config(outcome.chosen or {})) for outcome in outcomes] == [1, 8]


def test_an_interrupt_keeps_what_was_found(tmp_path: Path) -> None:
    made, outcomes = run(CostTrials(interrupt_after=3), tmp_path)
    assert made.interrupted
    assert outcomes[0].chosen is not None
    assert sum(outcome.chosen is not None for outcome in outcomes) < len(CASES_SUM) + 1
    written = tuner.write(outcomes, tmp_path, (9, 9))
    assert [path.name for path in written] == ["_helion_aot__rows_cuda_sm99.py"]


def test_time_is_up_but_what_the_tables_have_is_measured(tmp_path: Path) -> None:
    trials = CostTrials(seconds=10.0)
    _, outcomes = run(trials, tmp_path, budget=25.0)
    assert trials.now < 60
    assert all(outcome.before < math.inf for outcome in outcomes)


def test_few_configs_serve_points_that_are_alike(tmp_path: Path) -> None:
    cases = [Case("sum", Shape(2**14 // length, length, 32)) for length in (64, 256, 512, 1024)]
    _, outcomes = run(CostTrials(), tmp_path, cases)
    kept = {str(outcome.chosen) for outcome in outcomes}
    assert len(kept) == 2  # 64 wants two warps, 256 and up want eight
    assert all(outcome.after <= 1.1 * min(outcome.measured.times.values()) for outcome in outcomes)


def test_tables_are_added_to(tmp_path: Path) -> None:
    _, outcomes = run(CostTrials(), tmp_path)
    (path,) = tuner.write(outcomes, tmp_path, (9, 9))
    entries = tables.entries(path, TABLE.name)
    shipped = tables.entries(TABLE.find((9, 0), (2, 32, 32)).path, TABLE.name)
    assert set(entries) == {*shipped, (2, 32, 32), (2, 32, 256)}
    assert {point: entries[point] for point in shipped} == shipped
    use_tables(tmp_path)
    found = TABLE.find((9, 9), (2, 32, 300))
    assert (warps(found.config), found.source, found.path) == (8, "user", path)
    assert TABLE.find((9, 0), (2, 32, 300)).source == "shipped"  # the new table is for newer GPUs
    again, outcomes = run(CostTrials(), tmp_path, [Case("sum", Shape(4, 4096, 32))])
    assert not again.interrupted
    tuner.write(outcomes, tmp_path, (9, 9))
    assert set(tables.entries(path, TABLE.name)) == {*entries, (2, 32, 4096)}


def test_the_command_tunes_all_tables_of_a_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = CostTrials()
    assert command_line.tune(CASES[:1], trials, tmp_path, "quick") == 0
    printed = capsys.readouterr()
    for name in ("dense_add._add_dense", "_copies._to_elements", "_copies._to_cells"):
        assert name in printed.out
        assert name in printed.err
    assert "wrote" in printed.out
    assert "before ms" in printed.out
    assert "s left" in printed.err


def test_a_folder_that_cannot_be_added_to_is_refused_first(tmp_path: Path) -> None:
    trials = CostTrials()
    path = tmp_path / tables.file_name("dense_add", trials.capability)
    path.write_text("def autotune__add_dense(*args):\n    return {'block_sizes': [8, 8]}\n")
    with pytest.raises(ValueError, match=r"was not written by jagged\.tuning"):
        command_line.tune(CASES, trials, tmp_path, "quick")
    assert trials.timed == []


def test_an_interrupted_command_says_so(tmp_path: Path) -> None:
    assert command_line.tune(CASES[:1], CostTrials(interrupt_after=2), tmp_path, "quick") == 130
    assert list(tmp_path.glob("_helion_aot_*"))
