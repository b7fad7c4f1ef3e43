"""The padded model is the jagged one, and the measurement of a step says so before it times."""

import functools
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from bench import rows as results
from bench import train_step
from bench.padded_hstu import PaddedHSTU
from bench.report import table as report_table
from bench.train_step import SMALL, Problem, Training, check, exact
from examples.recommender.model import NextItemModel, hstu_encoder
from jagged import JaggedTensor
from jagged.modules import HSTUConfig, HSTUStack

CPU = torch.device("cpu")


def stack_of(preset: str, **changes: object) -> HSTUStack:
    config = getattr(HSTUConfig, preset)(
        embedding_dim=12,
        num_heads=2,
        attention_dim=6,
        hidden_dim=6,
        max_length=9,
        num_layers=2,
        dropout=0.0,
        **changes,
    )
    return HSTUStack(config)


@pytest.mark.parametrize("preset", ["research", "production"])
def test_padded_layers_are_the_same_function(preset: str) -> None:
    stack = stack_of(preset, **({"time_buckets": 0} if preset == "research" else {}))
    lengths = torch.tensor([3, 0, 9, 1, 5])
    values = torch.randn(18, 12)
    found = []
    for layers in (stack, PaddedHSTU(stack)):
        x = JaggedTensor.from_lengths(values.clone().requires_grad_(), lengths, max_length=9)
        out = layers(x)
        stack.zero_grad()
        (out.values * torch.linspace(-1, 1, 12)).square().sum().backward()
        found.append([out.values.detach(), x.values.grad, *(p.grad for p in stack.parameters())])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


def test_padded_layers_refuse_what_they_do_not_know() -> None:
    with pytest.raises(ValueError, match="must be causal without windows and times"):
        PaddedHSTU(stack_of("production", window=3))
    with pytest.raises(ValueError, match="x must know its max_length"):
        PaddedHSTU(stack_of("production"))(JaggedTensor(torch.randn(2, 12), torch.tensor([0, 2])))


def test_another_model_is_found_out() -> None:
    settings = SMALL.settings()
    seen = torch.ones(SMALL.num_items, dtype=torch.int64)
    model = NextItemModel(hstu_encoder(settings), seen, settings)
    problem = Problem.draw(train_step.LAWS["uniform"], SMALL, CPU).part(4)
    wanted = exact(model, problem)
    for provider in ("jagged", "torch-padded"):
        training = Training(provider, model, SMALL)
        assert check(training, problem, wanted) < 1e-5
        for _ in range(20):
            training.step(problem)
        with pytest.raises(ArithmeticError, match=r"loss off by .* gradients by"):
            check(training, problem, wanted)


@pytest.mark.parametrize("provider", ["jagged", "torch-padded"])
def test_empty_rows_in_place_of_the_rest_change_nothing(provider: str) -> None:
    problem = Problem.draw(train_step.LAWS["uniform"], SMALL, CPU)
    emptied = problem.emptied(5)
    assert len(emptied.batch) == SMALL.rows
    assert emptied.batch.lengths().tolist() == problem.batch.lengths()[:5].tolist() + [0] * 19
    model = train_step.model_of(SMALL, CPU)
    wanted = exact(model, problem.part(5))
    assert check(Training(provider, model, SMALL), emptied, wanted) < 1e-6


def test_the_compiled_padded_model_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a graph break, for the batches of both laws."""
    compiled = functools.partial(torch.compile, backend="aot_eager")
    monkeypatch.setattr(torch, "compile", compiled)
    torch._dynamo.reset()
    counters.clear()
    model = train_step.model_of(SMALL, CPU)
    training = Training(train_step.BASELINE, model, SMALL)
    for law in train_step.LAWS.values():
        problem = Problem.draw(law, SMALL, CPU)
        assert check(training, problem.emptied(9), exact(model, problem.part(9))) < 1e-5
        assert check(training, problem, exact(model, problem)) < 1e-5
    assert counters["stats"]["unique_graphs"] == 1


def test_where_compiling_ahead_fails_there_is_no_time() -> None:
    machine = results.machine(CPU, "abc", "2026-01-01")
    stopwatch = train_step.Stopwatch(CPU, budget_ms=1)
    rows = list(train_step.measure(machine, stopwatch, SMALL, [train_step.BASELINE], lambda: 3))
    assert [row.shape for row in rows] == list(train_step.LAWS)
    for row in rows:
        assert row.p50_ms is None
        assert row.error == "RuntimeError: the process that compiles it ended with code 3"


def test_measures_and_appends_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--cpu", "--rows", "3", "--budget-ms", "1", "--commit", "abc"]
    assert train_step.main([*arguments, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    rows = results.read([tmp_path / "cpu.csv"])
    assert [(row.op, row.mode, row.shape, row.provider) for row in rows] == [
        ("train_step", "step", shape, provider)
        for shape in ("skew", "uniform")
        for provider in ("jagged", "torch-padded")
    ]
    assert all(row.p50_ms is not None and row.p50_ms > 0 for row in rows)
    assert "4 rows in" in shown
    assert "s  skew jagged: " in shown.splitlines()[0]
    assert "sequences/s" in shown
    assert "train_step" in report_table(rows)


def test_the_speed_up_is_over_the_compiled_padded_model() -> None:
    machine = results.machine(CPU, "abc", "2026-01-01")

    def row(provider: str, p50: float, host: float) -> results.Row:
        return results.Row(
            machine, "train_step", "step", "skew", "bfloat16", provider, p50, host_us=host
        )

    rows = [row("jagged", 2.0, 4000.0), row("torch-padded-compile", 12.0, 100.0)]
    line = train_step.table(rows, SMALL).splitlines()[2]
    assert [cell.strip() for cell in line.split("|")[1:7]] == [
        *("skew", "jagged", "2.00", "4.00", "6,000", "3.00x"),
    ]
