"""The padded model is the jagged one, and the measurement of a step says so before it times."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from bench import rows as results
from bench import train_step
from bench.padded_hstu import FORMS, PaddedModel, check_stack, pad, padded_layers, unpad
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
    ways: list[Callable[[JaggedTensor], Tensor]] = [lambda x: stack(x).values]
    for form in ("gather", "copy"):
        ways.append(
            lambda x, form=form: unpad(padded_layers(stack, pad(x, form)), x)  # type: ignore[misc]
        )
    found = []
    for way in ways:
        x = JaggedTensor.from_lengths(values.clone().requires_grad_(), lengths, max_length=9)
        out = way(x)
        stack.zero_grad()
        (out * torch.linspace(-1, 1, 12)).square().sum().backward()
        found.append([out.detach(), x.values.grad, *(p.grad for p in stack.parameters())])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[2], found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", ["gather", "copy"])
def test_padded_rows_begin_with_the_elements(form: str) -> None:
    x = JaggedTensor.from_lengths(torch.arange(1, 6), torch.tensor([2, 0, 3]), max_length=4)
    padded = pad(x, form)
    assert padded.shape == (3, 4)
    assert padded[0, :2].tolist() == [1, 2]
    assert padded[2, :3].tolist() == [3, 4, 5]
    assert unpad(padded, x).tolist() == [1, 2, 3, 4, 5]


def test_padded_layers_refuse_what_they_do_not_know() -> None:
    with pytest.raises(ValueError, match="must be causal without windows and times"):
        check_stack(stack_of("production", window=3))
    with pytest.raises(ValueError, match="must have no group_norm"):
        check_stack(stack_of("production", group_norm=True))
    with pytest.raises(ValueError, match="x must know its max_length"):
        pad(JaggedTensor(torch.randn(2, 12), torch.tensor([0, 2])), "copy")


def test_padded_models_refuse_what_they_do_not_know() -> None:
    model = train_step.model_of(SMALL, CPU)
    with pytest.raises(ValueError, match="form must be one of gather, copy, ids, got 'sorted'"):
        PaddedModel(model, "sorted")
    model.settings = dataclasses.replace(model.settings, input_dropout=0.1)
    with pytest.raises(ValueError, match="must have no input dropout"):
        PaddedModel(model, "ids")
    other = train_step.model_of(SMALL, CPU)
    other.encoder = torch.nn.Identity()
    with pytest.raises(ValueError, match="must have an HSTUStack, got Identity"):
        PaddedModel(other, "ids")


def test_another_model_is_found_out() -> None:
    settings = SMALL.settings()
    seen = torch.ones(SMALL.num_items, dtype=torch.int64)
    model = NextItemModel(hstu_encoder(settings), seen, settings)
    problem = Problem.draw(train_step.LAWS["uniform"], SMALL, CPU).part(4)
    wanted = exact(model, problem)
    for provider in ("jagged", *train_step.EAGER):
        training = Training(provider, model, SMALL)
        assert check(training, problem, wanted) < 1e-5
        for _ in range(20):
            training.step(problem)
        with pytest.raises(ArithmeticError, match=r"loss off by .* gradients by"):
            check(training, problem, wanted)


@pytest.mark.parametrize("provider", ["jagged", *train_step.EAGER])
def test_empty_rows_in_place_of_the_rest_change_nothing(provider: str) -> None:
    problem = Problem.draw(train_step.LAWS["uniform"], SMALL, CPU)
    emptied = problem.emptied(5)
    assert len(emptied.batch) == SMALL.rows
    assert emptied.batch.lengths().tolist() == problem.batch.lengths()[:5].tolist() + [0] * 19
    model = train_step.model_of(SMALL, CPU)
    wanted = exact(model, problem.part(5))
    assert check(Training(provider, model, SMALL), emptied, wanted) < 1e-6


@pytest.mark.parametrize("form", FORMS)
def test_the_compiled_padded_model_is_compiled_once(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a graph break, for the batches of both laws."""
    compiled = functools.partial(torch.compile, backend="aot_eager")
    monkeypatch.setattr(torch, "compile", compiled)
    torch._dynamo.reset()
    counters.clear()
    model = train_step.model_of(SMALL, CPU)
    training = Training(f"torch-padded-{form}-compile", model, SMALL)
    for law in train_step.LAWS.values():
        problem = Problem.draw(law, SMALL, CPU)
        assert check(training, problem.emptied(9), exact(model, problem.part(9))) < 1e-5
        assert check(training, problem, exact(model, problem)) < 1e-5
    assert counters["stats"]["unique_graphs"] == 1


def test_where_compiling_ahead_fails_there_is_no_time() -> None:
    machine = results.machine(CPU, "abc", "2026-01-01")
    stopwatch = train_step.Stopwatch(CPU, budget_ms=1)
    join = {"torch-padded-ids-compile": 3}.__getitem__
    rows = list(train_step.measure(machine, stopwatch, SMALL, ["torch-padded-ids-compile"], join))
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
        for provider in ("jagged", *train_step.EAGER)
    ]
    assert all(row.p50_ms is not None and row.p50_ms > 0 for row in rows)
    assert "8 rows in" in shown
    assert "s  skew jagged: " in shown.splitlines()[0]
    assert "sequences/s" in shown
    assert "train_step" in report_table(rows)


def test_the_speed_up_is_over_the_fastest_compiled_padded_model() -> None:
    machine = results.machine(CPU, "abc", "2026-01-01")
    blank = results.Row(machine, "train_step", "step", "skew", "bfloat16", "")

    def row(provider: str, p50: float | None, host: float | None) -> results.Row:
        return dataclasses.replace(blank, provider=provider, p50_ms=p50, host_us=host)

    def line(rows: list[results.Row]) -> list[str]:
        cells = train_step.table(rows, SMALL).splitlines()[2].split("|")[1:7]
        return [cell.strip() for cell in cells]

    ours = row("jagged", 2.0, 4000.0)
    slower = row("torch-padded-gather-compile", 20.0, 100.0)
    rows = [ours, row("torch-padded-ids", 1.0, 1.0), slower]
    assert line(rows) == ["skew", "jagged", "2.00", "4.00", "6,000", "5.00x"]
    rows.append(row("torch-padded-copy-compile", 3.0, 12_000.0))
    assert line(rows)[-1] == "3.00x"
    rows.append(dataclasses.replace(slower, shape="uniform", p50_ms=8.0))
    assert line(rows)[-1] == "3.00x"
    rows.append(row("torch-padded-ids-compile", None, None))
    assert line(rows)[-1] == ""
