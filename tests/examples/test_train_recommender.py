import io
import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from examples import train_recommender
from examples.recommender import checkpoint, exits
from examples.recommender.settings import Settings, parse
from examples.recommender.train import learning_rate_factor

ROOT = Path(__file__).parents[2]
TINY = [
    *("--synthetic-users", "120", "--synthetic-items", "60", "--width", "8", "--negatives", "16"),
    *("--max-length", "20", "--token-budget", "128", "--device", "cpu"),
]


class Killed(Exception):
    """What ends a process between two instructions."""


def numbers(folder: Path) -> list[dict[str, Any]]:
    """The epochs of a run without what a clock says."""
    lines = (folder / "epochs.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for record in records:
        del record["seconds"], record["rows_per_second"]
    return records


def status(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "status.json").read_text()))


def weights(folder: Path, name: str) -> dict[str, torch.Tensor]:
    state = checkpoint.load(folder / f"{name}.pt")
    moments = state["optimizer"]["state"]
    return {
        **{f"model.{key}": value for key, value in state["model"].items()},
        **{f"best.{key}": value for key, value in state["best"].items()},
        **{f"{i}.{key}": v for i, kept in moments.items() for key, v in kept.items()},
        "random": state["random"]["torch"],
    }


def test_a_run_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    tests = train_recommender.main([*TINY, "--epochs", "2", "--out", str(out)])
    assert [test.model for test in tests] == ["popularity", "sasrec", "hstu"]
    assert {file.name for file in out.iterdir()} == {
        *("settings.json", "epochs.jsonl", "results.json", "curves.png", "hstu.pt", "sasrec.pt"),
        *("metrics.jsonl", "status.json"),
    }
    assert (out / "curves.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    printed = capsys.readouterr().out
    for words in ("synthetic: 120 users, 60 items", "hstu     epoch   2/2  loss", "sequences/s"):
        assert words in printed
    for label in ("popularity ", "SASRec (padded) ", "HSTU (jagged) "):
        assert label in printed
    assert len(numbers(out)) == 4


@pytest.mark.parametrize("name", ["hstu", "sasrec"])
@pytest.mark.parametrize(("every", "saves"), [(0, 1), (3, 2), (3, 7)])
def test_a_killed_run_continues_to_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, every: int, saves: int
) -> None:
    run = [*TINY, "--epochs", "3", "--models", name, "--checkpoint-steps", str(every)]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train_recommender.main([*run, "--out", str(whole)])

    save, done = checkpoint.save, 0

    def save_then_die(path: Path, state: checkpoint.State) -> None:
        nonlocal done
        save(path, state)
        done += 1
        if done == saves:
            raise Killed

    monkeypatch.setattr(checkpoint, "save", save_then_die)
    with pytest.raises(Killed):
        train_recommender.main([*run, "--out", str(killed)])
    assert not (killed / "results.json").exists()
    monkeypatch.setattr(checkpoint, "save", save)
    for generator in (torch.manual_seed, numpy.random.seed, random.seed):
        generator(99)  # a new process stands elsewhere
    train_recommender.main(["--resume", str(killed)])

    assert numbers(killed) == numbers(whole)
    ours, theirs = weights(killed, name), weights(whole, name)
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        assert torch.equal(ours[key], value), key


@pytest.mark.unpoisoned  # in all three processes alike
def test_a_run_killed_at_any_moment_continues(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run = [*TINY, "--epochs", "2", "--models", "hstu", "--checkpoint-steps", "1"]
    command = [sys.executable, "-m", "examples.train_recommender", *run, "--out", str(killed)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    while not (killed / "hstu.pt").exists():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.1)
    process.kill()
    process.wait()
    train_recommender.main(["--resume", str(killed)])
    train_recommender.main([*run, "--out", str(whole)])
    assert numbers(killed) == numbers(whole)
    for key, value in weights(whole, "hstu").items():
        assert torch.equal(weights(killed, "hstu")[key], value), key


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = [*TINY, "--epochs", "1", "--models", "sasrec", "--out", str(out)]
    first = train_recommender.main(run)
    before = (out / "sasrec.pt").read_bytes()
    assert train_recommender.main(["--resume", str(out)]) == first
    assert (out / "sasrec.pt").read_bytes() == before


def test_an_interruption_says_how_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", interrupt)
    with pytest.raises(SystemExit) as exit_code:
        train_recommender.main([*TINY, "--models", "sasrec", "--out", str(tmp_path)])
    assert exit_code.value.code == 130
    assert f"interrupted: continue with --resume {tmp_path}" in capsys.readouterr().err


def test_refuses_to_continue_with_other_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "events.txt", tmp_path / "run"
    lines = [f"{user} " + " ".join(str((user + i) % 7) for i in range(6)) for user in range(20)]
    data.write_text("\n".join(lines))
    run = [*TINY, "--epochs", "1", "--models", "sasrec", "--data", str(data), "--out", str(out)]
    train_recommender.main(run)
    data.write_text("\n".join(lines[:-1]))
    with pytest.raises(SystemExit) as end:
        train_recommender.main(["--resume", str(out)])
    assert end.value.code == exits.WRONG_CHECKPOINT
    said = capsys.readouterr().err
    assert re.search(r"sasrec\.pt was trained on other data than .*events\.txt", said)


def test_refuses_to_continue_from_a_broken_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_recommender.main([*TINY, "--epochs", "1", "--models", "sasrec", "--out", str(tmp_path)])
    file = tmp_path / "sasrec.pt"
    number, other = io.BytesIO(), io.BytesIO()
    torch.save(3, number)
    torch.save({"model": {}}, other)
    cannot = r"cannot be read .*: restore it, or move it away to train from the start"
    for content, message in (
        (b"", cannot),
        (file.read_bytes()[:1000], cannot),
        (b"junk", cannot),
        (number.getvalue(), "must hold a checkpoint, got int"),
        (other.getvalue(), "must have checkpoint format 2, got None"),
    ):
        file.write_bytes(content)
        with pytest.raises(SystemExit) as end:
            train_recommender.main(["--resume", str(tmp_path)])
        assert end.value.code == exits.WRONG_CHECKPOINT
        assert re.search(rf"sasrec\.pt {message}", capsys.readouterr().err)


def test_a_loss_that_is_not_finite_stops_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = [*TINY, "--models", "sasrec", "--learning-rate", "1e38", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as end:
        train_recommender.main(run)
    assert end.value.code == exits.NOT_FINITE
    message = r"the loss of sasrec is (nan|inf) in epoch 1, step \d+: lower the learning rate"
    assert re.search(message, capsys.readouterr().err)
    assert re.search(message, status(tmp_path)["reason"])
    assert status(tmp_path)["code"] == 65
    assert not (tmp_path / "sasrec.pt").exists()


def test_errors_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "events.txt"
    data.write_text("1 2 x")
    with pytest.raises(SystemExit, match=r"train_recommender: .*line 1: .* got 'x'"):
        train_recommender.main(["--data", str(data)])
    with pytest.raises(SystemExit, match="No such file"):
        train_recommender.main(["--data", str(tmp_path / "absent")])
    with pytest.raises(SystemExit, match="is not empty: continue that run with --resume"):
        train_recommender.main([*TINY, "--out", str(tmp_path)])
    for device in ("gpu", "meta"):
        message = f"device must be auto, cpu, cuda or cuda:1, got {device}"
        with pytest.raises(SystemExit, match=message):
            train_recommender.main(["--device", device, "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit, match="got cuda:99 where there"):
        train_recommender.main(["--device", "cuda:99", "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit, match=r"train_recommender: .*exists: .*events\.txt"):
        train_recommender.main([*TINY, "--out", str(data)])
    data.write_bytes(b"1 2 \xff")
    with pytest.raises(SystemExit, match=r"events\.txt must be text in UTF-8, got .* 0xff"):
        train_recommender.main(["--data", str(data)])
    for arguments, message in (
        (["--epochs", "0"], "epochs must be at least 1, got 0"),
        (["--heads", "3"], "heads must divide width 64, got 3"),
        (["--token-budget", "10"], "token_budget must hold a row of max_length 200, got 10"),
        (["--dropout", "1"], "dropout must be in [0, 1), got 1.0"),
        (["--temperature", "0"], "temperature must be positive and finite, got 0.0"),
        (["--temperature", "inf"], "temperature must be positive and finite, got inf"),
        (["--weight-decay", "inf"], "weight_decay must not be negative or infinite, got inf"),
        (["--synthetic-users", "0"], "synthetic_users must be at least 1, got 0"),
        (["--synthetic-items", "3"], "synthetic_items must be at least 16, got 3"),
        (["--seed", str(2**64)], f"seed must be in -2**63..2**63 - 1, got {2**64}"),
        (["--window", "-1"], "window must not be negative or infinite, got -1"),
        (["--weight-decay", "-0.1"], "weight_decay must not be negative or infinite, got -0.1"),
        (["--models", "hstu", "hstu"], "each once, got ['hstu', 'hstu']"),
        (["--models", "bert"], "invalid choice: 'bert'"),
        (["--resume", str(tmp_path)], "--resume must name a run folder, but there is no"),
        (
            ["--resume", str(tmp_path), "--epochs", "2"],
            "--resume continues with the settings of the run, so drop --epochs",
        ),
    ):
        with pytest.raises(SystemExit):
            parse(arguments)
        found = capsys.readouterr().err
        assert message in found
        assert len(found.splitlines()) == 2, "the usage and what is wrong, a line each"


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path, text: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    data = tmp_path / "events.txt"
    data.write_text("1 2 3 4 5 6\n")  # one user is enough
    run = ["--data", str(data), "--out", str(tmp_path / "run"), "--epochs", "1", "--device", "cpu"]
    with monkeypatch.context() as context:
        context.setattr(checkpoint, "write_text", refuse)
        with pytest.raises(SystemExit, match=r"train_recommender: .*denied: '.*settings\.json'"):
            train_recommender.main(run)
    train_recommender.main(run)
    monkeypatch.setattr(checkpoint, "write_text", refuse)
    with pytest.raises(SystemExit, match=r"train_recommender: .*denied: '.*status\.json'"):
        train_recommender.main(["--resume", str(tmp_path / "run")])


def test_settings_survive_a_file() -> None:
    settings = Settings(models=("hstu",), tied=False, data="/some/file", temperature=0.1)
    assert Settings.from_json(settings.to_json()) == settings


def test_settings_of_another_version_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.json"
    for text, message in (
        ('{"models": ["hstu"], "gone": 1}', "this program does not know, got gone"),
        ('{"width": 8}', "settings must have models"),
        ("{", "Expecting property name"),
        ("3", "'int' object is not iterable"),
        ('{"models": ["hstu"], "epochs": "two"}', "not supported between"),
    ):
        file.write_text(text)
        for arguments in (
            ["--resume", str(tmp_path)],
            ["--continue", "--out", str(tmp_path)],
        ):
            with pytest.raises(SystemExit):
                parse(arguments)
            found = capsys.readouterr().err
            assert str(file) in found
            assert message in found


def test_runs_as_a_file_from_anywhere(tmp_path: Path) -> None:
    file = ROOT / "examples" / "train_recommender.py"
    done = subprocess.run(
        [sys.executable, str(file), "--help"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "--temperature" in done.stdout


def test_the_learning_rate_warms_up_and_falls_to_a_tenth() -> None:
    assert learning_rate_factor(0, 0.0) == pytest.approx(0.01)
    assert learning_rate_factor(1_000, 0.0) == 1.0
    assert learning_rate_factor(1_000, 0.5) == pytest.approx(0.55)
    assert learning_rate_factor(1_000, 1.0) == pytest.approx(0.1)


def test_a_crash_while_writing_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "state.pt"
    checkpoint.save(file, {"step": 1})

    def half_written(state: object, handle: Any) -> None:
        handle.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", half_written)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(file, {"step": 2})
    assert checkpoint.load(file) == {"step": 1}


def test_random_generators_continue() -> None:
    def draw() -> tuple[float, float, float]:
        return random.random(), float(numpy.random.normal()), float(torch.rand(()))

    checkpoint.seed_everything(3)
    draw()
    state = checkpoint.random_state()
    expected = [draw(), draw()]
    checkpoint.seed_everything(4)
    checkpoint.restore_random_state(state)
    assert [draw(), draw()] == expected
