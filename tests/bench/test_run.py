"""A whole run on the CPU: rows, filters, failing contenders, interruption."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bench import run, work
from bench.cases import CASES, Case
from bench.contenders import Call, Contender, call
from bench.inputs import Inputs, make_inputs
from bench.measure import Fatal, Session
from bench.rows import Row, read
from bench.shapes import ATTENTION_FEATURES

FAST = ["--cpu", "--budget-ms", "1"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of a size that takes no time."""
    from bench import limits

    monkeypatch.setattr(limits, "_CPU", (2**16, 32))
    monkeypatch.setattr(run.Stopwatch, "warm", lambda self, seconds=0.5: None)


def replace_contenders(monkeypatch: pytest.MonkeyPatch, op: str, *contenders: Contender) -> None:
    case = dataclasses.replace(CASES[op], baselines=contenders)
    monkeypatch.setitem(CASES, op, case)


def right(inputs: Inputs) -> Call:
    return call(
        inputs,
        lambda: torch.segment_reduce(
            inputs["values"], "sum", offsets=inputs.offsets, axis=0, unsafe=True
        ),
    )


def broken(inputs: Inputs) -> Call:
    raise RuntimeError("cannot\n  do this")


def wrong(inputs: Inputs) -> Call:
    good = right(inputs)

    def run() -> Tensor:
        out = good.run()
        return torch.cat([out[:-1], torch.zeros_like(out[-1:])])

    return call(inputs, run)


@pytest.mark.usefixtures("small")
def test_a_run_writes_rows_and_a_failing_contender_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_contenders(
        monkeypatch,
        "sum",
        Contender("torch-broken", broken),
        Contender("torch-wrong", wrong),
        Contender("torch-right", right),
    )
    options = [*FAST, "--op", "sum", "--out", str(tmp_path), "--commit", "abc"]
    assert run.main(options) == 0
    rows = {(r.mode, r.provider): r for r in read([tmp_path / "cpu.csv"]) if r.op == "sum"}
    assert rows["forward", "torch-broken"].error == "RuntimeError: cannot do this"
    for mode in ("forward", "backward"):
        bad = rows[mode, "torch-wrong"]
        assert bad.error.startswith("wrong: ")
        assert bad.p50_ms is None
        for provider in ("jagged", "jagged-eager", "torch-right"):
            good = rows[mode, provider]
            assert good.machine.commit == "abc"
            assert good.p20_ms is not None
            assert good.p50_ms is not None
            assert good.p80_ms is not None
            assert 0 < good.p20_ms <= good.p50_ms <= good.p80_ms
            assert good.gb_s is not None
            assert good.gb_s > 0
            assert good.tflop_s is None
            assert float(good.error) < 1e-5
    for mode in ("call", "call-new", "call-grad", "call-grad-new"):
        cost = rows[mode, "jagged"].host_us
        assert cost is not None
        assert cost > 0
    text = capsys.readouterr().out
    assert "| sum | forward" in text
    assert "torch-wrong" in text


@pytest.mark.usefixtures("small")
def test_the_limits_are_measured_in_the_same_run(tmp_path: Path) -> None:
    run.main([*FAST, "--op", "mean", "--mode", "forward", "--out", str(tmp_path)])
    limits = {r.mode: r for r in read([tmp_path / "cpu.csv"]) if r.op == "limits"}
    assert set(limits) == {"copy", "read", "matmul", "call", "call-grad"}
    assert limits["copy"].gb_s is not None
    assert limits["matmul"].tflop_s is not None
    assert limits["call"].host_us is not None


@pytest.mark.usefixtures("small")
def test_ctrl_c_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure = run.measure

    def interrupted(
        session: Session, case: Case, shape: run.Shape, dtype: torch.dtype
    ) -> Iterator[Row]:
        if case.op == "mean":
            raise KeyboardInterrupt
        yield from measure(session, case, shape, dtype)

    monkeypatch.setattr(run, "measure", interrupted)
    options = [*FAST, "--op", "sum", "mean", "--mode", "forward", "--out", str(tmp_path)]
    assert run.main(options) == 130
    assert {r.op for r in read([tmp_path / "cpu.csv"])} == {"limits", "sum"}
    assert "| sum | forward" in capsys.readouterr().out


@pytest.mark.usefixtures("small")
def test_a_case_that_fails_as_a_whole_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_inputs(shape: run.Shape, total: int, make: object) -> dict[str, Tensor]:
        raise MemoryError("too large")

    monkeypatch.setitem(CASES, "sum", dataclasses.replace(CASES["sum"], operands=no_inputs))
    options = [*FAST, "--op", "sum", "mean", "--mode", "forward", "--out", str(tmp_path)]
    assert run.main(options) == 0
    rows = read([tmp_path / "cpu.csv"])
    (failed,) = (r for r in rows if r.op == "sum")
    assert (failed.provider, failed.error) == ("bench", "MemoryError: too large")
    assert any(r.op == "mean" and r.p50_ms is not None for r in rows)


@pytest.mark.usefixtures("small")
def test_a_contender_that_took_the_device_down_is_left_out_in_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = run.measure
    restarts: list[list[str]] = []

    def fatal(session: Session, case: Case, shape: run.Shape, dtype: torch.dtype) -> Iterator[Row]:
        if not session.broken:
            raise Fatal("sum:forward:small:float32:torch-padded", "illegal address")
        yield from measure(session, case, shape, dtype)

    monkeypatch.setattr(run, "measure", fatal)
    monkeypatch.setattr(run.os, "execv", lambda path, command: restarts.append(command))
    options = [*FAST, "--op", "sum", "--mode", "forward", "--out", str(tmp_path)]
    run.main(options)
    (command,) = restarts
    assert command[1:3] == ["-m", "bench.run"]
    assert run.main(command[3:]) == 0
    rows = read([tmp_path / "cpu.csv"])
    assert len([r for r in rows if r.op == "limits"]) == 5
    errors = {r.provider: r.error for r in rows if r.op == "sum" and r.p50_ms is None}
    assert errors == {"torch-padded": "RuntimeError: took the device down: illegal address"}


@pytest.mark.usefixtures("small")
def test_attention_is_measured_with_each_feature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["hstu_attention"]
    shapes = tuple(dataclasses.replace(shape, rows=2, longest=40) for shape in ATTENTION_FEATURES)
    monkeypatch.setitem(CASES, "hstu_attention", dataclasses.replace(case, shapes=shapes))
    options = [*FAST, "--op", "hstu_attention", "--shape", "feature-*", "--provider", "jagged"]
    run.main([*options, "--mode", "forward", "backward", "--out", str(tmp_path)])
    rows = [row for row in read([tmp_path / "cpu.csv"]) if row.op == "hstu_attention"]
    assert [(row.shape, row.mode) for row in rows] == [
        (shape.name, mode) for shape in shapes for mode in ("forward", "backward")
    ]
    for row in rows:
        assert row.p50_ms is not None, row.error
        (shape,) = (shape for shape in shapes if shape.name == row.shape)
        inputs = make_inputs(case.operands, shape, torch.bfloat16, torch.device("cpu"))
        assert inputs.attention is not None
        sizes = work.sizes(shape, inputs.lengths, torch.bfloat16, inputs.attention.num_targets)
        flops = case.work(sizes, row.mode == "backward").flops
        assert row.tflop_s == pytest.approx(flops / row.p50_ms * 1e-9, rel=1e-3)


def names(*arguments: str) -> list[str]:
    return [step.name for step in run.plan(run.parse(["--list", *arguments]))]


def test_the_plan_follows_the_filters() -> None:
    assert len(names()) > 200
    assert names("--cpu", "--op", "softmax") == ["softmax small float32", "softmax call"]
    quick = names("--quick", "--mode", "forward", "backward")
    assert len(quick) == len(CASES)
    assert "softmax uniform bfloat16" in quick
    assert names("--op", "sum", "mean", "--shape", "uniform", "--dtype", "float16") == [
        "sum uniform float16",
        "mean uniform float16",
    ]
    assert len(names("--op", "sum", "--shape", "mean*", "--mode", "forward")) == 8
    assert names("--op", "sum", "--shape", "uniform", "--mode", "call") == []


def test_without_a_gpu_the_cpu_must_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        assert run.parse([]).cpu is False
        return
    with pytest.raises(SystemExit):
        run.parse([])
    assert "give --cpu" in capsys.readouterr().err


def test_filters_that_leave_nothing_to_measure_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run.main(["--cpu", "--op", "sum", "--shape", "nosuch"])
    assert "have no case: --list prints all there are" in capsys.readouterr().err


def test_every_op_has_a_case_with_a_source() -> None:
    import jagged

    assert set(jagged.ops.__all__) <= set(CASES)
    for case in CASES.values():
        assert len(case.shapes) >= 6
        for shape in case.shapes:
            assert shape.source
