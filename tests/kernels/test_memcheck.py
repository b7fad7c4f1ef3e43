"""What compute-sanitizer is to run, on the CPU: the cases work, and a wrong result is found."""

import importlib
from typing import Any

import pytest
import torch
from torch import Tensor

from jagged.kernels import hstu_attention
from jagged.tuning.configs import Config
from jagged.tuning.launch import Launchable
from tests.kernels import memcheck
from tests.kernels.cases import Case
from tests.ops.battery import OpCase

CPU = torch.device("cpu")


def test_runs_the_public_ops(capsys: pytest.CaptureFixture[str]) -> None:
    assert memcheck.main(["--device", "cpu", "--share", "1/3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith(f"{len(lines) - 1} of {len(lines) - 1} cases ran in ")
    assert lines[-1].endswith(" 0 are wrong")


@pytest.mark.parametrize("every", [False, True])
def test_the_kernels_arguments_are_what_eager_takes(
    every: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = list(memcheck.kernel_runs(every))
    names = [run.name for run in runs]
    assert len(set(names)) == len(names)

    def eager(case: Case) -> Any:
        return importlib.import_module(f"jagged.eager.{case.op}")

    monkeypatch.setattr(Case, "module", eager)
    for run in runs if not every else runs[::9]:
        assert memcheck.check(run, CPU) < 0.02, run.name


def test_the_short_cases_are_for_the_kernels_of_short_rows() -> None:
    found = []
    for lengths in (memcheck.MANY, memcheck.MANY_AND_LONG):
        rows, longest = len(lengths), max(lengths)
        for table in ("FORWARD_SHORT", "BACKWARD_SHORT", "BACKWARD_CAUSAL"):
            for width in (64, 128):
                q = torch.empty(sum(lengths), 2, width, dtype=torch.bfloat16)
                config = hstu_attention._short(getattr(hstu_attention, table), q, q, rows, longest)
                assert config is not None, (table, width)
                block = config.constants["BLOCK"]
                found.append(hstu_attention.Slots.of(q.shape[0], rows, longest, block).levels)
    assert found == [0] * 6 + [2] * 6


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda out: out * 1.1, "Wrong result 0 has a relative error of"),
        (lambda out: out[:-1], "Wrong result 0 has shape"),
        (lambda out: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_wrong_result_is_found(
    spoil: Any, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = OpCase.call

    def spoiled(case: OpCase, arguments: dict[str, Any]) -> Tensor:
        out = call(case, arguments)
        return out if out.dtype == torch.float64 else spoil(out)

    monkeypatch.setattr(OpCase, "call", spoiled)
    assert memcheck.main(["--device", "cpu", "--only", "sum float32"]) == 1
    printed = capsys.readouterr().out
    assert f"BAD sum float32: {reason}" in printed
    assert "1 of 1 cases ran" in printed


def test_a_run_of_nothing_is_a_failure() -> None:
    assert memcheck.main(["--device", "cpu", "--only", "no such case"]) == 1


def test_every_config_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    make_run, asked, launched = memcheck.kernel_run, [], []

    def kernel_run(case: Case, owner: Any, point: Any, config: Config) -> memcheck.Run:
        asked.append(config)
        return make_run(case, owner, point, config)

    monkeypatch.setattr(memcheck, "kernel_run", kernel_run)
    monkeypatch.setattr(Launchable, "__call__", lambda _, config, *args: launched.append(config))
    for run in memcheck.kernel_runs(every=True):
        launched.clear()
        run.results(CPU)
        assert any(config is asked[-1] for config in launched), run.name
