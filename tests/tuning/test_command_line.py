"""The command line, as far as it needs no GPU."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from jagged.tuning import command_line, tables
from jagged.tuning.cases import Case
from jagged.tuning.configs import use_tables
from jagged.tuning.operands import Shape

SHAPE = ["--shape", "rows=1024,length=256,width=128"]


@pytest.fixture(autouse=True)
def own_folder() -> Iterator[None]:
    yield
    use_tables(None)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert command_line.main(arguments) == 0
    return capsys.readouterr().out


def test_show_says_what_a_call_gets_and_from_where(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "show", "dense_add", *SHAPE, "--capability", "9.0")
    assert "dense_add bfloat16 rows=1024, length=256, width=128" in text
    assert "forward: dense_add._add_dense at (2, 128, 256)" in text
    assert "backward: _copies._to_cells at (2, 128, 256)" in text
    assert text.count("the shipped table for this GPU: ") == 3
    assert "_helion_aot_dense_add_cuda_sm90.py\n  {'block_sizes': [64, 128]" in text


def test_show_for_other_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    newer = printed(capsys, "show", "sum", *SHAPE, "--capability", "10.3")
    assert "the shipped table of the nearest older GPU: " in newer
    older = printed(capsys, "show", "sum", *SHAPE, "--capability", "7.5", "--dtype", "float32")
    assert "the oldest shipped table, since there is none for such an old GPU: " in older
    assert "(4, 128, 256)" in older


def test_show_takes_a_folder_of_tables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own = {"block_sizes": [8, 8], "num_warps": 1}
    tables.write(tmp_path, "dense_add", (9, 9), {"_add_dense": {(2, 1, 1): own}})
    options = ["--capability", "9.9", "--tables", str(tmp_path)]
    text = printed(capsys, "show", "dense_add", *SHAPE, *options)
    assert f"your table: {tmp_path}" in text
    assert str(own) in text
    assert "the nearest older GPU" in text  # the backward


def test_show_takes_options(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--shape", "rows=64,length=512,width=128,heads=4", "--option", "position=1"]
    text = printed(capsys, "show", "hstu_attention", *shape, "--capability", "9.0")
    assert "hstu_attention.attend_biased" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tune"], "tune measures on a CUDA device, and there is none here"),
        (["helion", "--op", "sum"], "there is none here"),
        (["show", "sum", *SHAPE], "say which one with --capability"),
        (["show", "sum", *SHAPE, "--capability", "9"], "a compute capability is such as 9.0"),
        (["show", "sum", *SHAPE, "--capability", "9.0", "--option", "a"], "NAME=NUMBER, got 'a'"),
        (["show", "sum", "--shape", "rows=1"], "needs rows and length, got 'rows=1'"),
        (["tune", "--shape", "rows=1,length=x"], "length must be a number, got 'x'"),
        (["tune", "--budget", "0"], "a number of seconds above 0, got '0'"),
        (["tune", "--budget", "soon"], "a number of seconds above 0, got 'soon'"),
        (["check", "--tables", "nowhere"], "there are no tables in nowhere"),
        (["tune", "--shape", "rows=1,length=1", "--shapes", "x.json"], "not allowed with"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as error:
        command_line.main(arguments)
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_help_has_sizes_in_one_piece_and_the_default_dtype(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for command in ("show", "tune", "export", "helion"):
        with pytest.raises(SystemExit, match="0"):
            command_line.main([command, "--help"])
        text = capsys.readouterr().out
        assert all(size in text for size in ("length=MEAN", "columns=N", "heads=H", "longest=N"))
        assert ": bfloat16\n" in text
        assert "norm_mul_dropout: plain silu concat dropout" in " ".join(text.split())


def test_only_tune_reads_the_budget_of_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELION_AUTOTUNE_BUDGET_SECONDS", "soon")
    assert "forward" in printed(capsys, "show", "sum", *SHAPE, "--capability", "9.0")
    with pytest.raises(SystemExit, match="2"):
        command_line.main(["tune"])
    assert "a number of seconds above 0, got 'soon'" in capsys.readouterr().err


def test_cases_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    entries = [{"op": op, "rows": 4, "length": 9} for op in ("sum", "mean")]
    path.write_text(json.dumps({"cases": entries}))
    parser = command_line.argparse.ArgumentParser()
    command_line._add_cases(parser)
    parser.set_defaults(effort="quick")

    def cases(*arguments: str) -> list[Case]:
        return command_line._cases(parser.parse_args(arguments))

    assert cases("--from-trace", str(path)) == cases("--shapes", str(path))
    assert cases("--from-trace", str(path), "--op", "sum") == [Case("sum", Shape(4, 9))]
    with pytest.raises(ValueError, match=r"calls\.json has no call of softmax"):
        cases("--from-trace", str(path), "--op", "softmax")
    shapes = cases("--op", "sum", "--op", "mean", "--shape", "rows=1,length=2")
    assert [(case.op, case.shape) for case in shapes] == [
        ("sum", Shape(1, 2)),
        ("mean", Shape(1, 2)),
    ]
    assert {case.op for case in cases()} >= {"sum", "hstu_attention"}


def test_an_effort_that_does_not_tune_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HELION_AUTOTUNE_EFFORT", "none")
    with pytest.raises(SystemExit):
        command_line.main(["tune", "--op", "sum"])
    assert "HELION_AUTOTUNE_EFFORT must be among ['quick', 'full']" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["helion", "triton"])
def test_without_its_packages_it_names_the_extra(package: str) -> None:
    run = (
        f"import runpy, sys; sys.modules[{package!r}] = None; "
        "runpy.run_module('jagged.tuning', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    # torch has words of its own about a missing Triton.
    assert done.stderr.splitlines()[-1] == (
        f"python -m jagged.tuning needs the package {package}, which is not installed: "
        "pip install 'jagged-layers[gpu]'"
    )
    assert "Traceback" not in done.stderr
