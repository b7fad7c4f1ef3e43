"""The training step in buffers of fixed capacity, and as a CUDA graph."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from examples import train_recommender
from examples.recommender.captured import WARM_UP_STEPS, CapturedStep, fill
from examples.recommender.data import Rows
from examples.recommender.model import NextItemModel, hstu_encoder
from examples.recommender.settings import Settings
from jagged import JaggedTensor

SETTINGS = Settings(
    width=32, heads=2, max_length=9, token_budget=64, dropout=0.0, input_dropout=0.0
)
NUM_ITEMS = 50


def stream_of_rows(num_rows: int = 24) -> JaggedTensor:
    lengths = torch.randint(1, SETTINGS.max_length + 1, (num_rows,))
    total = int(lengths.sum())
    items, following = torch.randint(NUM_ITEMS, (2, total))
    return JaggedTensor.from_lengths(items, lengths, max_length=9, weights=following)


def buffer(capacity: int, max_rows: int, device: torch.device | str = "cpu") -> JaggedTensor:
    """Full of what an earlier batch left behind."""
    old = torch.randint(NUM_ITEMS, (2, capacity), device=device)
    return JaggedTensor(old[0], torch.full((max_rows + 1,), 7, device=device), 9, old[1])


def model_of(**changes: object) -> NextItemModel:
    settings = dataclasses.replace(SETTINGS, **changes)  # type: ignore[arg-type]
    seen = torch.randint(1, 9, (NUM_ITEMS,))
    return NextItemModel(hstu_encoder(settings), seen, settings)


def test_a_buffer_holds_the_batch_and_nothing_else() -> None:
    batch = Rows(stream_of_rows()).take([3, 0, 8])
    room = buffer(64, 5)
    fill(room, batch)
    rows = room.validate().rows()
    assert [row.tolist() for row in rows[:3]] == [row.tolist() for row in batch.rows()]
    assert [len(row) for row in rows[3:]] == [0, 0]
    assert room.weights is not None
    assert batch.weights is not None
    assert room.weights[: len(batch.values)].tolist() == batch.weights.tolist()


def test_a_batch_that_does_not_fit() -> None:
    batch = Rows(stream_of_rows()).take(range(8))
    total = batch.values.shape[0]
    with pytest.raises(ValueError, match=rf"{total - 1} elements and 9 rows, got {total} and 8"):
        fill(buffer(total - 1, 9), batch)
    with pytest.raises(ValueError, match=rf"{total} elements and 7 rows, got {total} and 8"):
        fill(buffer(total, 7), batch)
    long = JaggedTensor(batch.values, batch.offsets, 10, batch.weights)
    with pytest.raises(ValueError, match="rows must have at most max_length 9, got 10"):
        fill(buffer(total, 8), long)
    bare = JaggedTensor(batch.values, batch.offsets, 9)
    with pytest.raises(ValueError, match="must carry the next items as weights, got none"):
        fill(buffer(total, 8), bare)


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "full", "horizon": 3, "repeat_bias": True},
        {"loss": "uniform"},
        {"layer": "production", "loss": "full"},
    ],
)
def test_the_tail_takes_no_part(changes: dict[str, object]) -> None:
    model = model_of(**changes)
    batch = Rows(stream_of_rows()).take(range(6))
    room = buffer(64, 11)
    fill(room, batch)
    grads = []
    for given in (batch, room):
        model.zero_grad()
        loss = model(given, torch.arange(20))
        loss.backward()
        grads.append([loss.detach(), *(p.grad for p in model.parameters())])
    torch.testing.assert_close(grads[1], grads[0])


def test_graphs_need_a_gpu() -> None:
    with pytest.raises(ValueError, match="device must be a CUDA device, which has graphs, got cpu"):
        CapturedStep(
            lambda batch, _: batch.values.sum(),
            capacity=4,
            max_rows=2,
            max_length=2,
            device=torch.device("cpu"),
        )


def test_a_run_says_what_graphs_need(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="--captured needs a GPU and no torchrun, got cpu"):
        train_recommender.main(["--captured", "--device", "cpu", "--out", str(tmp_path)])
    assert not list(tmp_path.iterdir())


class Training:
    """A model with its optimizer, whose step a graph can hold."""

    def __init__(self, device: torch.device, loss: str) -> None:
        torch.manual_seed(0)
        self.model: nn.Module = model_of(loss=loss, horizon=2).to(device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=torch.tensor(1e-2, device=device),
            fused=True,
            capturable=True,
        )

    def step(self, batch: JaggedTensor, negatives: Tensor | None) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss: Tensor = self.model(batch, negatives)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@pytest.mark.unpoisoned  # deterministic mode refuses the scatter of the loss
@pytest.mark.parametrize("loss", ["full", "uniform"])
def test_a_captured_step_trains_as_an_eager_one(device: torch.device, loss: str) -> None:
    if device.type != "cuda":
        pytest.skip("only a GPU has graphs")
    device = torch.device("cuda", torch.cuda.current_device())
    rows = Rows(stream_of_rows(), device)
    eager, captured = Training(device, loss), Training(device, loss)
    size = 20 if loss == "uniform" else 0
    graph = CapturedStep(
        captured.step, capacity=64, max_rows=8, max_length=9, negatives=size, device=device
    )
    losses: list[list[Tensor]] = [[], []]
    for turn in range(WARM_UP_STEPS + 5):
        indices = torch.randperm(24)[: 3 + turn % 4]
        negatives = torch.randint(NUM_ITEMS, (size,), device=device) if size > 0 else None
        losses[0].append(eager.step(rows.take(indices), negatives))
        losses[1].append(graph(rows.take(indices), negatives))
        if turn == WARM_UP_STEPS + 2:
            for training in (eager, captured):  # a rate that changes between replays
                for group in training.optimizer.param_groups:
                    group["lr"].fill_(1e-3)
    assert graph.graph is not None
    torch.testing.assert_close(torch.stack(losses[1]), torch.stack(losses[0]), rtol=0.02, atol=0.02)
    assert losses[0][-1] < losses[0][0]


@pytest.mark.unpoisoned
@pytest.mark.parametrize("loss", ["full", "uniform"])
def test_a_run_of_captured_steps(device: torch.device, tmp_path: Path, loss: str) -> None:
    """The losses of an eager run; its checkpoint is read again."""
    if device.type != "cuda":
        pytest.skip("only a GPU has graphs")
    options = {
        "device": "cuda",
        "models": "hstu",
        "synthetic-users": "300",
        "synthetic-items": "90",
        "epochs": "4",
        "dropout": "0",
        "input-dropout": "0",
        "width": "32",
        "max-length": "40",
        "token-budget": "512",
        "loss": loss,
        "negatives": "30",
        "checkpoint-steps": "5",
    }
    run = [word for name, value in options.items() for word in (f"--{name}", value)]
    found = []
    for name, extra in (("eager", []), ("captured", ["--captured"])):
        out = tmp_path / name
        train_recommender.main([*run, *extra, "--out", str(out)])
        lines = (out / "epochs.jsonl").read_text().splitlines()
        found.append(torch.tensor([json.loads(line)["loss"] for line in lines]))
    torch.testing.assert_close(found[1], found[0], rtol=0.01, atol=0.01)
    again = train_recommender.main(["--resume", str(tmp_path / "captured")])
    assert again[-1].best_epoch >= 1
