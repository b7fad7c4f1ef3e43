"""Ops as exported files, run where Helion and jagged cannot be imported, against float64."""

import importlib.util
import sys
import types
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from jagged.tuning import operands
from jagged.tuning.export import export

SHAPE = operands.Shape(rows=3, length=4, width=32, columns=48, heads=2)
# One op of each kind: generating the code of a kernel takes about a second.
CASES = [
    ("dense_bmm", "forward"),
    ("hstu_attention", "forward"),
    ("layer_norm", "backward"),
    ("norm_mul_dropout", "forward"),
    ("padded_add", "forward"),
    ("row_add", "backward"),
    ("softmax", "forward"),
    ("sum", "backward"),
    ("to_padded", "forward"),
]
OPTIONS = {
    "dense_bmm": {"bias": 1},
    "softmax": {"max_length": 7},
    "norm_mul_dropout": {"silu": 1, "concat": 1, "dropout": 30},
    "hstu_attention": {"targets": 1, "window": 3},
}


def load(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Import the file while neither package can be."""
    path = folder / "exported.py"
    path.write_text(text)
    for name in list(sys.modules):
        if name.split(".")[0] in ("helion", "jagged"):
            monkeypatch.setitem(sys.modules, name, None)
    spec = importlib.util.spec_from_file_location("exported", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wide(arg: Any) -> Any:
    return arg.double() if isinstance(arg, Tensor) and arg.is_floating_point() else arg


def run(
    op: str, direction: str, dtype: torch.dtype, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Tensor], list[Tensor]]:
    """What the exported file gives, and what the implementation in torch gives in float64."""
    options = OPTIONS.get(op, {})
    text = export(op, direction, SHAPE, dtype, torch.int32, options)
    # Another number of rows and elements than it was generated for.
    shape = operands.Shape(rows=2, length=5, width=32, columns=48, heads=2, longest=SHAPE.most)
    args = operands.make(op, direction, shape, dtype, torch.int32, "cpu", options)
    expected = getattr(import_module(f"jagged.eager.{op}"), direction)(*map(wide, args))
    got = getattr(load(text, folder, monkeypatch), direction)(*args)
    pair = [[one] if isinstance(one, Tensor) else list(one) for one in (got, expected)]
    return pair[0], pair[1]


@pytest.mark.parametrize(("op", "direction"), CASES)
def test_runs_alone(
    op: str, direction: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got, expected = run(op, direction, torch.float32, tmp_path, monkeypatch)
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert one.dtype in (torch.float32, torch.int32)
        torch.testing.assert_close(one.double(), other, rtol=2e-4, atol=2e-4)


def test_keeps_the_dtype(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (got,), (expected,) = run("mean", "forward", torch.bfloat16, tmp_path, monkeypatch)
    assert got.dtype is torch.bfloat16
    torch.testing.assert_close(got.double(), expected, rtol=1e-2, atol=1e-2)
