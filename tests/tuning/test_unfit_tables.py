"""Tables that are damaged, or were tuned for other kernels: one sentence, never another config."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from jagged.kernels import softmax
from jagged.tuning import command_line, tables, use_tables, validate

POINT = (2, 128, 64)
ROW = {"block_sizes": [64, 32], "num_warps": 2, "form": "row", "constants": {"DEEP": 4, "BLOCK": 8}}
SHOW = ["show", "softmax", "--shape", "rows=64,length=64,width=128", "--capability", "9.0"]


@pytest.fixture(autouse=True)
def own_folder() -> Iterator[None]:
    yield
    use_tables(None)


def written(folder: Path, config: Any = ROW) -> Path:
    return tables.write(folder, "softmax", (9, 0), {"forward": {POINT: config}})


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit, match="2"):
        command_line.main(arguments)
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        (0.0, "it has no table"),
        (0.2, "it has no table"),
        (0.7, "key_forward without autotune_forward"),
        (0.9, "SyntaxError: .*line"),
    ],
)
def test_a_file_that_was_cut_short_is_no_table(
    kept: float, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: int(kept * len(lines))]))
    message = rf"{path} is damaged, or no file of tables \({reason}.*delete it and tune again"
    with pytest.raises(ValueError, match=message):
        tables.load(path)
    use_tables(tmp_path)
    with pytest.raises(ValueError, match=message):
        softmax.FORWARD.find((9, 0), POINT)
    for command in (SHOW, ["check", "--op", "softmax"]):
        assert f"{path} is damaged" in refusal(capsys, *command, "--tables", str(tmp_path))


def test_a_decision_over_other_features_is_named(tmp_path: Path) -> None:
    path = tmp_path / "heuristic_forward.py"
    path.write_text("def autotune_forward(rows):\n    return {}\n")
    with pytest.raises(ValueError, match=r"heuristic_forward\.py: autotune_forward\(2, 1, 1\) "):
        tables.choice(path, "forward", (2, 1, 1))


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (ROW | {"form": "gone"}, "form 'gone', which must be one of 'row', 'rows'"),
        (ROW | {"constants": {"BLOCK": 8}}, r"constants BLOCK, which must be DEEP, BLOCK"),
        (ROW | {"constants": {"BLOCK": 8, "DEEP": 4}}, "constants BLOCK, DEEP, which must be DEEP"),
        ({"block_sizes": [64, 32], "form": "row"}, "constants none, which must be DEEP, BLOCK"),
        (ROW | {"constants": [4, 8]}, "constants"),
        (ROW | {"form": ["row"]}, r"form \['row'\], which must be one of"),
    ],
)
def test_a_config_for_other_kernels_is_refused_before_it_runs(
    config: Any, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, config)
    use_tables(tmp_path)
    with pytest.raises(ValueError, match=rf"{path}.*{reason}"):
        softmax.FORWARD.find((9, 0), POINT)
    assert str(path) in refusal(capsys, *SHOW, "--tables", str(tmp_path))
    (problem,) = validate.problems(["softmax"], tmp_path)
    assert str(path) in str(problem)
    assert "tune it again" in str(problem)


def test_a_list_for_other_loops_is_refused_when_it_is_compiled(tmp_path: Path) -> None:
    """Only Helion knows how many it takes."""
    config = {"block_sizes": [4, 4, 4], "form": "rows", "constants": {"BLOCK": 4}}
    tables.write(tmp_path, "softmax", (0, 0), {"forward": {POINT: config}})
    use_tables(tmp_path)
    with pytest.raises(
        ValueError, match=r"_softmax_rows .*expected 2, got 3.*jagged\.tuning check"
    ):
        softmax.forward(torch.randn(4, 8), torch.tensor([0, 4]), None)


@pytest.mark.parametrize("name", ["_helion_aot_gone_cuda_sm90.py", "heuristic_gone.py"])
def test_check_names_what_no_kernel_reads(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path)
    renamed = path.rename(tmp_path / name)
    assert command_line.main(["check", "--tables", str(tmp_path)]) == 1
    assert f"{renamed}: no kernel of this version reads it" in capsys.readouterr().out


def test_check_names_a_table_that_no_kernel_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tables.write(tmp_path, "softmax", (9, 0), {"sideways": {POINT: ROW}})
    assert command_line.main(["check", "--op", "softmax", "--tables", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert f"{path}, sideways: no kernel of this version reads it" in said


def test_check_says_what_it_cannot_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / tables.file_name("softmax", (9, 0))
    path.write_text("def autotune_forward(*args):\n    return {'block_sizes': [8]}\n")
    assert command_line.main(["check", "--op", "softmax", "--tables", str(tmp_path)]) == 1
    assert f"{path}, softmax.forward: not checked, as it has no POINTS" in capsys.readouterr().out


def test_a_folder_without_tables_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = f"there are no tables in {tmp_path}"
    with pytest.raises(ValueError, match=message):
        use_tables(tmp_path)
    for command in (SHOW, ["export", *SHOW[1:]], ["check"]):
        assert message in refusal(capsys, *command, "--tables", str(tmp_path))


def test_an_empty_heuristic_dir_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELION_HEURISTIC_DIR", str(tmp_path))
    with pytest.warns(UserWarning, match=r"HELION_HEURISTIC_DIR must name a folder with tables"):
        assert softmax.FORWARD.find((9, 0), POINT).source == "shipped"


def test_a_relative_folder_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path)
    monkeypatch.chdir(tmp_path)
    use_tables(".")
    os.chdir("/")
    assert softmax.FORWARD.find((9, 0), POINT).source == "user"
