"""What the Makefile hands on."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["it's mine.txt", 'a "quoted" one.txt', "plain.txt"])
def test_the_demo_takes_any_path(name: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    made = ["-s", "-o", ".venv/.demo"]  # of another Python, which is not to be installed here
    done = subprocess.run(
        ["make", *made, "demo", f"BIN={tmp_path}", f"DATA=/data/{name}", "ARGS=--epochs 1"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "MAKEFLAGS"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    expected = ["-m", "examples.train_recommender", "--data", f"/data/{name}", "--epochs", "1"]
    assert done.stdout.splitlines() == expected
