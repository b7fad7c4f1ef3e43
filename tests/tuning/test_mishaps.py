"""What goes wrong while the command line tunes: one sentence, and nothing found is lost."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
import torch

from jagged.kernels import sum as row_sum
from jagged.tuning import command_line, tables, trials, tuner, use_tables
from jagged.tuning.cases import Case
from jagged.tuning.configs import Config
from jagged.tuning.operands import Shape
from jagged.tuning.plan import Unit, units
from jagged.tuning.trials import Fit, GpuTrials, Unmeasurable
from tests.processes import python_path
from tests.tuning.trials import CostTrials

SUM = ["tune", "--op", "sum", "--shape", "rows=64,length=64,width=32"]


class Closing(CostTrials):
    """As on the command line."""

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Closing]]:
    """What the next command measures with: the last of them."""
    found = [Closing()]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(command_line, "GpuTrials", lambda device, workers: found[-1])
    yield found
    use_tables(None)


def tune(folder: Path, *more: str) -> int:
    return command_line.main([*SUM, "--out", str(folder / "tables"), *more])


def refusal(capsys: pytest.CaptureFixture[str], folder: Path, *more: str) -> str:
    with pytest.raises(SystemExit) as error:
        tune(folder, *more)
    assert error.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    return said.removeprefix("python -m jagged.tuning: ")


@pytest.mark.parametrize("device", ["foo", "cpu", "cuda:2", "cuda:x"])
def test_a_device_that_is_not_there(
    device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(capsys, tmp_path, "--device", device)
    assert said == f"--device must be a GPU of this machine, cuda:0 to cuda:1, got {device}"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"HELION_ASSERT_CACHE_HIT": "1"}, "Expected cache hit"),
        ({"HELION_DISALLOW_AUTOTUNING": "1"}, "Autotuning is disabled"),
        ({"HELION_AUTOTUNE_CACHE": "Elsewhere"}, "HELION_AUTOTUNE_CACHE must be one of"),
        ({"HELION_REMOTE_CACHE_BACKEND": "no.such.Backend"}, "No module named 'no'"),
        ({"HELION_REMOTE_CACHE_BACKEND": "jagged.tuning.remote.Gone"}, "has no attribute 'Gone'"),
        ({"HELION_REMOTE_CACHE_BACKEND": "os.path.join"}, "a RemoteCacheBackend subclass"),
    ],
)
def test_switches_that_forbid_it_are_read_first(
    variables: dict[str, str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    made: list[Closing],
) -> None:
    if "HELION_REMOTE_CACHE_BACKEND" in variables:
        monkeypatch.setenv("HELION_AUTOTUNE_CACHE", "RemoteAutotuneCache")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert message in refusal(capsys, tmp_path)
    assert made[-1].timed == []


@pytest.mark.parametrize("place", ["tables", "jagged"])
def test_a_folder_that_cannot_be_written_is_refused_first(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], made: list[Closing]
) -> None:
    """The tables', and that of the cache."""
    (tmp_path / place).write_text("a file")
    assert f"{tmp_path / place}" in refusal(capsys, tmp_path)
    assert made[-1].timed == []


def test_an_interrupt_at_any_time_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "units", interrupted)
    assert tune(tmp_path) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_call_that_cannot_be_made_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made: list[Closing]
) -> None:
    class Full(Closing):
        def check(self, unit: Unit, config: Config) -> str:
            if unit.case.shape.rows == 64:
                raise Unmeasurable("CUDA out of memory")
            return super().check(unit, config)

    made.append(Full())
    assert tune(tmp_path, "--shape", "rows=8,length=256,width=32") == 0
    said = capsys.readouterr()
    assert "cannot be measured: CUDA out of memory" in said.err
    assert said.out.count("not measured") == 2  # forward and backward
    assert "wrote" in said.out


def test_operands_that_do_not_fit_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    (unit, *_) = units([Case("sum", Shape(4, 4, 32), torch.complex64)], (9, 0))
    gpu = GpuTrials.__new__(GpuTrials)
    gpu._unit, gpu._device = None, torch.device("cpu")
    monkeypatch.setattr(gpu, "_alive", lambda: None)

    def out_of_memory(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB\nmore")

    monkeypatch.setattr(trials.plan, "implementation", lambda *_: None)
    monkeypatch.setattr(Case, "arguments", out_of_memory)
    for ask in (lambda: gpu.check(unit, unit.current), lambda: gpu.times(unit, [unit.current])):
        with pytest.raises(Unmeasurable, match=r"OutOfMemoryError: CUDA out .* 9 GiB$"):
            ask()


def test_a_compiling_process_that_was_killed_is_said() -> None:
    class Broken:
        def map(self, *_: Any) -> Iterator[Fit]:
            raise BrokenProcessPool("terminated abruptly")

    (unit, *_) = units([Case("sum", Shape(4, 4, 32))], (9, 0))
    gpu = GpuTrials.__new__(GpuTrials)
    gpu._pool, gpu._target = Broken(), None  # type: ignore[assignment]
    with pytest.raises(ChildProcessError, match="fewer --workers; it goes on where it ended"):
        gpu.fits(unit, [unit.current])


def test_tables_for_other_kernels_are_tuned_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check` says so, and what was left of them would be in the way of every call."""
    good = {"block_sizes": [32], "num_warps": 2, "form": "row"}
    good["constants"] = {"DEEP": 4, "BLOCK": 16}
    lists = {"block_sizes": [32, 32, 32, 32], "num_warps": 2}
    folder = tmp_path / "tables"
    folder.mkdir()
    entries = {(2, 32, 64): good | {"form": "gone"}, (2, 32, 8): good, (4, 32, 64): lists}
    path = tables.write(folder, "_rows", (9, 9), {"reduce_rows": entries})
    assert tune(tmp_path) == 0
    assert f"left out 2 configs of {path} that do not fit the kernels" in capsys.readouterr().out
    kept = tables.entries(path, "reduce_rows")
    assert set(kept) == {(2, 32, 64), (2, 32, 8)}
    assert kept[2, 32, 64].get("form") != "gone"
    assert command_line.main(["check", "--op", "sum", "--tables", str(folder)]) == 0


def test_a_file_of_which_nothing_fits_is_removed(tmp_path: Path) -> None:
    entries = {(2, 32, 64): {"block_sizes": [32], "form": "gone"}}
    path = tables.write(tmp_path, "_rows", (8, 0), {"reduce_rows": entries})
    tuner.leave_out_misfits(["sum"], tmp_path)
    assert not path.exists()
    assert row_sum.BACKWARD.find((8, 0), (2, 32, 64)).source != "user"


def test_the_power_may_go_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed without a chance to write, a run is gone on with."""
    monkeypatch.setenv("HELION_SKIP_CACHE", "1")  # the journal alone
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, sys\n"
        "from pathlib import Path\n"
        "from jagged.tuning import command_line\n"
        "from jagged.tuning.cases import Case\n"
        "from jagged.tuning.operands import Shape\n"
        "from tests.tuning.trials import CostTrials\n"
        "class Killed(CostTrials):\n"
        "    def times(self, unit, configs):\n"
        "        if len(self.timed) > 8:\n"
        "            os.kill(os.getpid(), 9)\n"
        "        return super().times(unit, configs)\n"
        "cases = [Case('sum', Shape(64, 64, 32))]\n"
        "command_line.tune(cases, Killed(), Path(sys.argv[1]), 'quick')\n"
    )
    folder = tmp_path / "tables"
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        env=os.environ | {"PYTHONPATH": python_path()},
        capture_output=True,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    before = (folder / "journal.jsonl").read_text()
    assert before.count('"result"') > 8
    fresh, resumed = Closing(), Closing()
    cases: Sequence[Case] = [Case("sum", Shape(64, 64, 32))]
    command_line.tune(cases, resumed, folder, "quick")
    command_line.tune(cases, fresh, tmp_path / "other", "quick")
    assert len(resumed.timed) < len(fresh.timed)
    (one,), (other,) = (list(f.glob("_helion_aot_*")) for f in (folder, tmp_path / "other"))
    assert one.read_text() == other.read_text()
