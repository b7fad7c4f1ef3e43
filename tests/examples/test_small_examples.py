"""The small examples run, and what they print is true."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from examples import hstu_block, pool_features, ranking_mlp

ROOT = Path(__file__).parents[2]


def test_pool_features() -> None:
    errors = pool_features.main(steps=100)
    assert set(errors) == {"SumPooling", "MeanPooling", "AttentionPooling"}
    # Only attention can leave the noise out of the mean.
    assert errors["AttentionPooling"] < min(errors["SumPooling"], errors["MeanPooling"])


def test_hstu_block(capsys: pytest.CaptureFixture[str]) -> None:
    assert hstu_block.main() < 1e-5
    # Five events that see four back, then two candidates that do not see each other.
    picture = "1000000 1100000 1110000 1111000 1111100 0111110 0111101"
    assert picture.replace(" ", "\n") in capsys.readouterr().out


def test_ranking_mlp() -> None:
    assert ranking_mlp.main(users=1_500, epochs=8) > 0.6


@pytest.mark.parametrize("name", ["pool_features", "hstu_block", "ranking_mlp"])
def test_lines(name: str) -> None:
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) < 100


@pytest.mark.parametrize(
    "name",
    [
        "pool_features",
        "hstu_block",
        "ranking_mlp",
        "torchrec_model",
        "read_parquet",
        "helion_tutorial/__main__",
    ],
)
def test_help_explains_and_an_unknown_option_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(ROOT / "examples" / f"{name}.py")
    monkeypatch.setattr(sys, "argv", [file, "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(file, run_name="__main__")
    command = f"python -m examples.{name.removesuffix('/__main__')}"
    assert command in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [file, "--steps", "3"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(file, run_name="__main__")
    assert "unrecognized arguments: --steps 3" in capsys.readouterr().err


def test_runs_as_a_file_from_anywhere(tmp_path: Path) -> None:
    file = ROOT / "examples" / "pool_features.py"
    done = subprocess.run(
        [sys.executable, "-c", f"import runpy; runpy.run_path({str(file)!r})"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
