"""What a run of days needs: ends that a scheduler understands, good checkpoints, metrics."""

import json
import os
import signal
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from examples import train_recommender
from examples.recommender import checkpoint, exits, metrics, tables
from examples.recommender.distributed import World, choose_device, here
from examples.recommender.exits import Termination
from examples.recommender.metrics import MetricsLog
from examples.recommender.settings import Settings, parse
from examples.recommender.train import Trainer

TINY = [
    *("--synthetic-users", "60", "--synthetic-items", "40", "--width", "8", "--negatives", "16"),
    *("--max-length", "10", "--token-budget", "64", "--device", "cpu", "--models", "sasrec"),
]

# What torchrun tells a process that has no others.
ALONE = dict.fromkeys(("RANK", "LOCAL_RANK", "MASTER_PORT"), "0") | {
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "localhost",
}


def status(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "status.json").read_text()))


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def losses(folder: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in records(folder) if "learning_rate" in line]


def at_step(monkeypatch: pytest.MonkeyPatch, number: int, action: Any) -> None:
    """Call `action(trainer)` after a step."""
    step = Trainer._step

    def then(self: Trainer, rows: list[int]) -> None:
        step(self, rows)
        if self.step == number:
            action(self)

    monkeypatch.setattr(Trainer, "_step", then)


def test_sigterm_saves_and_asks_to_be_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run = [*TINY, "--epochs", "2", "--log-steps", "2"]
    train_recommender.main([*run, "--out", str(whole)])
    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        at_step(patch, 5, lambda _: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(SystemExit) as end:
            train_recommender.main([*run, "--out", str(stopped)])
    assert end.value.code == exits.RUN_AGAIN == 75
    assert signal.getsignal(signal.SIGTERM) == before
    assert f"stopped after step 6: continue with --resume {stopped}" in capsys.readouterr().err
    assert status(stopped)["code"] == 75
    assert checkpoint.load(stopped / "sasrec.pt")["step"] == 6
    train_recommender.main(["--resume", str(stopped)])
    assert losses(stopped) == losses(whole)
    assert status(stopped) == {"code": 0, "reason": "done"}


@pytest.mark.parametrize("where", ["loss", "weights"])
def test_the_last_checkpoint_is_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def spoil(trainer: Trainer) -> None:
        with torch.no_grad():
            next(trainer.model.parameters()).fill_(torch.nan)

    # A weight spoilt by step 6 is found as the checkpoint of step 6 is due; by step 5, as the
    # losses are read before.
    at_step(monkeypatch, 6 if where == "weights" else 5, spoil)
    with pytest.raises(SystemExit) as end:
        train_recommender.main([*TINY, "--checkpoint-steps", "2", "--out", str(tmp_path)])
    assert end.value.code == exits.NOT_FINITE == 65
    expected = (
        "the weights of sasrec are not finite after step 6"
        if where == "weights"
        else "the loss of sasrec is nan in epoch 1, step 6"
    )
    assert expected in status(tmp_path)["reason"]
    state = checkpoint.load(tmp_path / "sasrec.pt")
    assert state["step"] == 4
    assert all(value.isfinite().all() for value in state["model"].values())


def test_the_step_is_named_though_losses_are_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(trainer: Trainer) -> None:
        trainer.recent[1] = torch.inf  # of the second step of those that are read together

    at_step(monkeypatch, 7, spoil)
    with pytest.raises(SystemExit):
        train_recommender.main([*TINY, "--log-steps", "5", "--out", str(tmp_path)])
    assert "the loss of sasrec is inf in epoch 1, step 7" in status(tmp_path)["reason"]


def test_metrics_of_steps_and_epochs(tmp_path: Path) -> None:
    train_recommender.main([*TINY, "--epochs", "2", "--log-steps", "3", "--out", str(tmp_path)])
    epochs = [line for line in records(tmp_path) if "ndcg" in line]
    assert [line["epoch"] for line in epochs] == [1, 2]
    last = epochs[0]["step"]
    of_steps = [line for line in records(tmp_path) if "ndcg" not in line]
    assert [line["step"] for line in of_steps[:4]] == [3, 6, 9, 12]
    assert last in [line["step"] for line in of_steps], "what is left of an epoch is logged"
    assert of_steps[0].keys() == {
        *("model", "step", "epoch", "loss", "learning_rate"),
        *("rows_per_second", "events_per_second", "seconds_left"),
    }
    assert of_steps[-1]["seconds_left"] == 0
    assert of_steps[0]["seconds_left"] > 0


def test_records_past_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    kept = [{"model": "hstu", "step": 2}, {"model": "sasrec", "step": 9}]
    dropped = {"model": "hstu", "step": 3}
    lines = [json.dumps(line) for line in (kept[0], dropped, kept[1])]
    file.write_text("\n".join(lines) + '\n{"model": "hs')
    log = MetricsLog(tmp_path, "hstu", writing=True, tensorboard=False)
    with log.open(2):
        log.record(3, {"loss": 0.5})
    assert records(tmp_path) == [*kept, {**dropped, "loss": 0.5}]
    other = MetricsLog(tmp_path, "hstu", writing=False, tensorboard=False)
    with other.open(0):
        other.record(1, {"loss": 0.25})
    assert len(records(tmp_path)) == 3


def test_a_line_a_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 59.0, 61.0, 100.0, 122.0])
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: next(clock))
    log = MetricsLog(Path(), "hstu", writing=True, tensorboard=False)
    for step in (1, 2, 3, 4):
        values = {"loss": 1.5, "rows_per_second": 1e3, "seconds_left": 3_661.0}
        log.show(step, 1_234, values)
    assert capsys.readouterr().out.splitlines() == [
        "hstu     step 2/1,234  loss 1.5000    1,000 sequences/s  1:01:01 left",
        "hstu     step 4/1,234  loss 1.5000    1,000 sequences/s  1:01:01 left",
    ]


def test_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int) -> None:
            calls.append((folder, purge_step))

        def add_scalar(self, name: str, value: float, step: int) -> None:
            calls.append((name, value, step))

        def close(self) -> None:
            calls.append("closed")

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    log = MetricsLog(tmp_path, "hstu", writing=True, tensorboard=True)
    with log.open(4):
        log.record(5, {"loss": 0.5})
    assert calls == [(str(tmp_path / "tensorboard" / "hstu"), 5), ("loss", 0.5, 5), "closed"]


def test_tensorboard_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(SystemExit, match=r"--tensorboard needs the package: pip install"):
        train_recommender.main([*TINY, "--tensorboard", "--out", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()


def test_the_same_command_again_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = [*TINY, "--epochs", "1", "--out", str(tmp_path / "run"), "--continue"]
    first = train_recommender.main(run)
    assert train_recommender.main(run) == first
    for arguments, message in (
        ([*run, "--epochs", "2"], "has epochs 1 in place of 2"),
        (["--continue"], "--continue needs the run folder as --out"),
    ):
        with pytest.raises(SystemExit):
            parse(arguments)
        assert message in capsys.readouterr().err


def test_sharded_tables_are_never_replaced_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = [*TINY, "--tables", "sharded", "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit, match="--tables sharded needs torchrun"):
        train_recommender.main(run)
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tables, "LOOKUP_OP", "an_operator_of_another_build")
    with pytest.raises(SystemExit, match="sharded tables need fbgemm's training kernels"):
        train_recommender.main(run)
    monkeypatch.setitem(sys.modules, "fbgemm_gpu", None)
    with pytest.raises(SystemExit, match="sharded tables need torchrec and fbgemm-gpu: "):
        train_recommender.main(run)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="tables sharded needs a sampled loss"):
        Settings(tables="sharded", loss="full")


@pytest.mark.parametrize("several", [False, True])
def test_a_run_continues_the_way_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    run = [*TINY, "--epochs", "1", "--continue", "--out", str(tmp_path)]
    if several:
        (tmp_path / "sasrec").mkdir()
    else:
        (tmp_path / "sasrec.pt").touch()
        for name, value in ALONE.items():
            monkeypatch.setenv(name, value)
    (tmp_path / "settings.json").write_text(parse(run)[0].to_json())
    message = "is a run of several processes" if several else "is a run without torchrun"
    try:
        with pytest.raises(SystemExit, match=message):
            train_recommender.main(run)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def test_who_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ALONE:
        monkeypatch.delenv(name, raising=False)
    assert here() == World()
    assert World().same("word") == "word"
    values = torch.ones(2)
    assert World().sum(values) is values
    seen = {"RANK": "11", "WORLD_SIZE": "16", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}
    for name, value in seen.items():
        monkeypatch.setenv(name, value)
    assert here() == World(rank=11, size=16, local_rank=3, local_size=8, launched=True)


def test_every_process_of_a_node_takes_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    world = World(rank=7, size=8, local_rank=3, launched=True)
    assert choose_device("auto", world) == torch.device("cuda", 3)
    assert choose_device("cpu", world) == torch.device("cpu")
    assert choose_device("cuda:1", World()) == torch.device("cuda", 1)
    with pytest.raises(ValueError, match="got cuda:4 where there are 4 GPUs"):
        choose_device("cuda:4", World())
    with pytest.raises(ValueError, match=r"must be cuda under torchrun.*got cuda:1"):
        choose_device("cuda:1", world)
    with pytest.raises(ValueError, match="got local rank 5 and 4 GPUs: lower --nproc-per-node"):
        choose_device("cuda", World(rank=5, size=8, local_rank=5, launched=True))


def test_a_second_sigterm_changes_nothing() -> None:
    termination = Termination()
    with termination.watched():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        assert termination()
