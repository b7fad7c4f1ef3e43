"""The padded model is the jagged one, and the measurement of a step says so before it times."""

from pathlib import Path

import pytest
import torch

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
