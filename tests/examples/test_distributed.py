"""The recommender in two processes: the same numbers as in one, whatever happens to them."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from examples import train_recommender
from examples.recommender import checkpoint
from examples.recommender.data import leave_one_out
from examples.recommender.distributed import World
from examples.recommender.sharded_checkpoint import ShardedCheckpoints
from examples.recommender.synthetic import synthetic_sequences
from examples.recommender.train import bucket_bounds
from jagged.data import TokenBudgetSampler

ROOT = Path(__file__).parents[2]
# Training batches of one row are among these, so that one of two processes has nothing to do.
TINY = [
    *("--synthetic-users", "100", "--synthetic-items", "60", "--width", "8", "--negatives", "16"),
    *("--max-length", "20", "--token-budget", "130", "--device", "cpu", "--log-steps", "1"),
]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
PROGRAM = "examples/train_recommender.py"
EXACT = ["--dropout", "0", "--input-dropout", "0"]

# In all processes alike.
pytestmark = [
    pytest.mark.unpoisoned,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning"),
]


class Launched:
    """Processes of one run, started as torchrun starts them."""

    def __init__(self, count: int, arguments: list[str], log: Path) -> None:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        self.log = log
        self.output = log.open("w")
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", "examples.train_recommender", *arguments],
                cwd=ROOT,
                stdout=self.output,
                stderr=subprocess.STDOUT,
                env=os.environ
                | {"RANK": str(rank), "WORLD_SIZE": str(count)}
                | {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(count)}
                | {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)},
            )
            for rank in range(count)
        ]

    def wait(self) -> list[int]:
        """The exit codes."""
        codes = [process.wait(timeout=120) for process in self.processes]
        self.output.close()
        return codes

    def wait_for(self, file: Path) -> None:
        while not file.exists():
            assert all(process.poll() is None for process in self.processes), self.log.read_text()
            time.sleep(0.005)


def run(count: int, arguments: list[str], folder: Path) -> None:
    """Start processes and see them end well."""
    log = folder.with_suffix(".log")
    codes = Launched(count, [*arguments, "--out", str(folder)], log).wait()
    assert codes == [0] * count, log.read_text()


def steps(folder: Path) -> list[tuple[str, int, float]]:
    """(model, step, loss) of every step, and figures of epochs, without what a clock says."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        (line["model"], line["step"], value)
        for line in lines
        for key, value in line.items()
        if key in ("loss", "epoch_loss", "ndcg", "hit_rate")
    ]


def weights(folder: Path, model: str) -> dict[str, torch.Tensor]:
    """The tensors of the newest checkpoint, whole."""
    checkpoints = ShardedCheckpoints(folder / model, World())
    newest = checkpoints.newest()
    assert newest is not None
    state = {
        key: torch.empty(tensor[0], dtype=tensor[1])
        for key, tensor in checkpoints.keys(newest).items()
        if tensor is not None
    }
    checkpoints.load(newest, state)
    return state


def alone(folder: Path, model: str) -> dict[str, torch.Tensor]:
    """The weights of a run without torchrun."""
    state = checkpoint.load(folder / f"{model}.pt")["model"]
    return {f"model/{key}": value for key, value in state.items()}


def same_steps(ours: Path, theirs: Path) -> None:
    assert [step[:2] for step in steps(ours)] == [step[:2] for step in steps(theirs)]
    values = [[step[2] for step in steps(folder)] for folder in (ours, theirs)]
    torch.testing.assert_close(values[0], values[1], rtol=2e-5, atol=1e-6)


def test_these_runs_have_batches_that_leave_a_process_nothing() -> None:
    split = leave_one_out(synthetic_sequences(100, 60, seed=0), 20)
    batches = TokenBudgetSampler(split.train.lengths(), 130, bucket_bounds=bucket_bounds(20))
    assert min(len(rows) for epoch in (0, 1) for rows in batches.batches(epoch)) == 1


@pytest.mark.parametrize(("loss", "model"), [("uniform", "hstu"), ("full", "sasrec")])
def test_two_processes_train_as_one(tmp_path: Path, loss: str, model: str) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    arguments = [*TINY, *EXACT, "--epochs", "2", "--loss", loss, "--models", model]
    train_recommender.main([*arguments, "--out", str(one)])
    done = subprocess.run(
        [*TORCHRUN, "--nproc-per-node", "2", PROGRAM, *arguments, "--out", str(two)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "on 2 x CPU" in done.stdout
    assert done.stdout.count("epoch   2/2") == 1, "one process prints"
    same_steps(two, one)
    found = weights(two, model)
    for key, value in alone(one, model).items():
        # A softmax does not depend on its keys' bias: Adam scales up what rounding leaves of that
        # gradient, and its sign is any.
        if not key.endswith("projection.bias") or model != "sasrec":
            torch.testing.assert_close(found[key], value, rtol=1e-3, atol=2e-5, msg=key)


@pytest.mark.parametrize(("loss", "tied"), [("uniform", "--tied"), ("in-batch", "--no-tied")])
def test_sharded_tables_of_two_processes_train_as_those_of_one(
    tmp_path: Path, loss: str, tied: str
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    arguments = [*TINY, *EXACT, "--epochs", "2", "--loss", loss, tied, "--models", "hstu"]
    arguments += ["--tables", "sharded"]
    run(1, arguments, one)
    run(2, arguments, two)
    same_steps(two, one)
    expected, found = weights(one, "hstu"), weights(two, "hstu")
    assert found.keys() == expected.keys()
    assert sum(key.startswith("tables/") for key in found) == (1 if tied == "--tied" else 2)
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-3, atol=2e-5, msg=key)


def test_killed_at_any_moment_torchrun_starts_them_again_to_the_same_numbers(
    tmp_path: Path,
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    arguments = [*TINY, "--epochs", "2", "--models", "hstu", "--checkpoint-steps", "3"]
    arguments += ["--tables", "sharded", "--continue"]
    run(2, arguments, whole)
    torchrun = [*TORCHRUN, "--nproc-per-node", "2", "--max-restarts", "1"]
    with (tmp_path / "log").open("w") as log:
        launcher = subprocess.Popen(
            [*torchrun, PROGRAM, *arguments, "--out", str(killed)],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        while not (killed / "hstu" / "000001").exists():
            assert launcher.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.005)
        time.sleep(random.Random(os.getpid()).random() * 0.2)
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        assert len(children) == 2
        assert json.loads((killed / "status.json").read_text())["code"] is None
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        assert launcher.wait(timeout=120) == 0, (tmp_path / "log").read_text()
    assert json.loads((killed / "status.json").read_text()) == {"code": 0, "reason": "done"}
    assert steps(killed) == steps(whole)
    expected, found = weights(whole, "hstu"), weights(killed, "hstu")
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.equal(found[key], value), key


def test_asked_to_stop_all_save_and_any_number_of_processes_goes_on(tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    arguments = [*TINY, *EXACT, "--epochs", "2", "--models", "hstu", "--tables", "sharded"]
    run(2, arguments, whole)
    processes = Launched(2, [*arguments, "--out", str(stopped)], tmp_path / "stopped.log")
    processes.wait_for(stopped / "metrics.jsonl")
    processes.processes[1].send_signal(signal.SIGTERM)
    assert processes.wait() == [75, 75], processes.log.read_text()
    status = json.loads((stopped / "status.json").read_text())
    assert status["code"] == 75
    assert f"continue with --resume {stopped}" in status["reason"]
    assert len(steps(stopped)) < len(steps(whole))
    log = tmp_path / "resumed.log"
    assert Launched(1, ["--resume", str(stopped)], log).wait() == [0], log.read_text()
    same_steps(stopped, whole)
    found = weights(stopped, "hstu")
    for key, value in weights(whole, "hstu").items():
        torch.testing.assert_close(found[key], value, rtol=1e-3, atol=2e-5, msg=key)


def test_a_loss_that_is_not_finite_ends_all(tmp_path: Path) -> None:
    arguments = [*TINY, "--models", "sasrec", "--learning-rate", "1e38", "--out", str(tmp_path)]
    assert Launched(2, arguments, tmp_path.with_suffix(".log")).wait() == [65, 65]
    reason = json.loads((tmp_path / "status.json").read_text())["reason"]
    assert "the loss of sasrec is" in reason
    assert "in epoch 1, step" in reason


@pytest.mark.parametrize("broken", [".metadata", "__0_0.distcp"])
@pytest.mark.parametrize("left", ["gone", "empty", "cut", "junk"])
def test_a_broken_checkpoint_is_named(broken: str, left: str, tmp_path: Path) -> None:
    checkpoints = ShardedCheckpoints(tmp_path / "hstu", World())
    number = checkpoints.save({"model/weight": torch.ones(100), "progress": b"here"}, None)
    file = tmp_path / "hstu" / f"{number:06d}" / broken
    contents = {"empty": b"", "cut": file.read_bytes()[:100], "junk": b"junk"}
    file.unlink()
    if left in contents:
        file.write_bytes(contents[left])
    with pytest.raises(checkpoint.Mismatch, match=r"hstu/000001 cannot be read .*: restore it, or"):
        checkpoints.load(number, dict.fromkeys(checkpoints.keys(number), torch.empty(100)))


def test_who_leaves_flushes_and_skips_the_end_of_the_interpreter() -> None:
    """There, threads of gloo may abort a process that is done."""
    program = """
import atexit
from examples.recommender.distributed import leave
atexit.register(print, "the interpreter ends")
print("done", end="")
leave()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "done")
