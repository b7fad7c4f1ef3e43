"""What the tuner does without a GPU: compiling candidates, holding tables against kernels."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch._subclasses import fake_tensor

from jagged.kernels import sum as row_sum
from jagged.tuning import command_line, tables, validate
from jagged.tuning.cases import Case
from jagged.tuning.configs import Config, use_tables
from jagged.tuning.offline import H200, FakeDevice, compile_kernel, pretend
from jagged.tuning.operands import Shape
from jagged.tuning.plan import units
from jagged.tuning.trials import compiled

CASE = Case("sum", Shape(64, 64, 128))
TABLE = row_sum.BACKWARD
GOOD = {"block_sizes": [32, 128], "num_warps": 2}


@pytest.fixture(autouse=True)
def own_folder() -> Iterator[None]:
    yield
    use_tables(None)


def test_a_candidate_that_fits() -> None:
    fit = compiled(TABLE.stem, TABLE.name, CASE, "backward", Config(GOOD), H200)
    assert (fit.stack, fit.error) == (0, "")


def test_no_driver_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA build of torch asks for it at the first fake tensor, on a machine without one too."""

    def ask(device: torch.device) -> None:
        raise RuntimeError("Found no NVIDIA driver on your system.")

    monkeypatch.setattr(fake_tensor, "init_gpu_context", ask)
    with pretend(H200):
        made = FakeDevice().tensor(torch.empty(3, device="meta"), ())
    assert made.device == torch.device("cuda:0")


def test_a_candidate_that_spills_on_another_gpu() -> None:
    ampere = dataclasses.replace(H200, name="an older one", capability=(8, 0))
    config = Config({"block_sizes": [256, 128], "num_warps": 1})
    fit = compiled(TABLE.stem, TABLE.name, CASE, "backward", config, ampere)
    assert fit.stack > 0


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"block_sizes": [32]}, ".*expected 2 block sizes .*got 1"),
        ({"block_sizes": [32, 24]}, ".*24"),
        ({"block_sizes": [32, 32], "warps": 2}, ".*warps"),
        ({"block_sizes": [32, 32], "l2_groupings": [1, 1]}, ".*l2_groupings"),
    ],
)
def test_a_candidate_that_is_none(config: dict[str, object], reason: str) -> None:
    (unit,) = (u for u in units([CASE], H200.capability) if u.table is TABLE)
    (launch,) = unit.launches(Config(config))
    with pytest.raises(ValueError, match=f"does not fit the kernel _spread_rows: {reason}"):
        compile_kernel(*launch)
    fit = compiled(TABLE.stem, TABLE.name, CASE, "backward", Config(config), H200)
    assert "the config does not fit the kernel _spread_rows: " in fit.error


def test_the_check_names_what_must_be_tuned_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = {(2, 32, 64): GOOD, (2, 128, 64): {"block_sizes": [32, 128, 8], "num_warps": 2}}
    path = tables.write(tmp_path, TABLE.stem, (9, 0), {TABLE.name: entries})
    (problem,) = validate.problems(["sum", "mean"], tmp_path)
    assert (problem.path, problem.point) == (path, (2, 128, 64))
    text = str(problem)
    assert text.startswith(
        f"{path}, _rows._spread_rows at (2, 128, 64): the config does not fit the kernel "
        "_spread_rows: Too many values for config['block_sizes']"
    )
    assert text.endswith("; tune it again: python -m jagged.tuning tune --op sum")
    assert command_line.main(["check", "--op", "sum", "--tables", str(tmp_path)]) == 1
    assert "1 configs or tables do not fit" in capsys.readouterr().out


def test_a_form_that_is_gone_must_be_tuned_again(tmp_path: Path) -> None:
    form = {"form": "gone", "block_sizes": [32, 128]}
    tables.write(tmp_path, TABLE.stem, (9, 0), {"reduce_rows": {(8, 128, 64): form}})
    (problem,) = validate.problems(["sum"], tmp_path)
    assert problem.reason == "it has the form 'gone', which must be one of 'row', ''"


def test_shipped_tables_of_a_quick_op_pass_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["check", "--op", "row_add"]) == 0
    assert "all configs fit" in capsys.readouterr().out


def test_a_product_has_tensor_cores() -> None:
    case = Case("jagged_bmm", Shape(64, 64, 128), torch.bfloat16)
    (unit,) = (u for u in units([case], H200.capability) if u.direction == "forward")
    (launch,) = unit.launches(unit.current)
    assert compile_kernel(*launch)[0].wgmma > 0
