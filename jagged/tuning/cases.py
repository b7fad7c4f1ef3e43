"""Calls of ops as a model makes them: what `trace` writes and the tuner measures."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from jagged.tuning import operands, tables

ELEMENTS = 2**18  # T of the calls that are measured where none are given
LENGTHS = {"quick": (16, 256), "full": (4, 16, 64, 256, 512)}
WIDTHS = {"quick": (128,), "full": (32, 128)}
DTYPES = {"quick": (torch.bfloat16,), "full": (torch.bfloat16, torch.float32)}
HEADS = 4


@dataclass(frozen=True)
class Case:
    """A call of an op: sizes, dtype, options as `operands` has them, and how often it was made."""

    op: str
    shape: operands.Shape
    dtype: torch.dtype = torch.bfloat16
    options: Mapping[str, int] = field(default_factory=dict)
    calls: int = 1
    backward: bool = True

    def arguments(self, direction: str, device: str) -> tuple[Any, ...]:
        """Of the implementation's `forward` or `backward`."""
        options = dict(self.options)
        return operands.make(
            self.op, direction, self.shape, self.dtype, torch.int64, device, options
        )

    def __str__(self) -> str:
        sizes = asdict(self.shape) | dict(self.options)
        text = ", ".join(f"{name}={value}" for name, value in sizes.items() if value)
        return f"{self.op} {str(self.dtype).removeprefix('torch.')} {text}"


def write_cases(path: Path, cases: Iterable[Case]) -> None:
    """The cases as a JSON file, at once."""
    text = [
        {"op": case.op, "dtype": str(case.dtype).removeprefix("torch."), **asdict(case.shape)}
        | {"options": dict(case.options), "calls": case.calls, "backward": case.backward}
        for case in cases
    ]
    with tables.replacing(path) as temporary:
        temporary.write_text(json.dumps({"cases": text}, indent=1) + "\n", encoding="utf-8")


def read_cases(path: Path) -> list[Case]:
    """The cases of a file that `write_cases` or a person wrote.

    `op`, `rows` and `length` are needed of each.

    Raises:
        ValueError: what the file holds is no list of cases; it says which and why.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("cases"), list):
        raise ValueError(f'{path} must hold {{"cases": [...]}}')
    return [_case(entry, f"{path}: case {i}") for i, entry in enumerate(content["cases"])]


def _case(entry: Any, where: str) -> Case:
    if not isinstance(entry, dict):
        raise ValueError(f"{where} must be an object with op, rows and length, got {entry!r}")
    rest = dict(entry)
    op: str | None = rest.pop("op", None)
    dtype: Any = getattr(torch, str(rest.pop("dtype", "bfloat16")), None)
    if op not in operands.OPS:
        raise ValueError(f"{where}: op must be one of {', '.join(operands.OPS)}, got {op!r}")
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{where}: {entry['dtype']!r} is no dtype")
    if op not in operands.ANY_DTYPE and not dtype.is_floating_point:
        raise ValueError(f"{where}: {op} takes floating-point values, got {dtype}")
    more = {name: rest.pop(name) for name in ("options", "calls", "backward") if name in rest}
    options = more.get("options", {})
    if not (isinstance(options, dict) and all(type(n) is int for n in options.values())):
        raise ValueError(f"{where}: options must be numbers by name, got {options!r}")
    if type(more.get("calls", 1)) is not int or type(more.get("backward", True)) is not bool:
        raise ValueError(f"{where}: calls must be a number, backward true or false, got {more}")
    try:
        case = Case(op, operands.Shape(**rest), dtype, **more)
        case.arguments("forward", "meta")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error
    return case


def default_cases(op: str, effort: str) -> list[Case]:
    """What is measured for an op where neither a trace nor a shape is given."""
    heads = HEADS if op == "hstu_attention" else 1
    return [
        Case(op, operands.Shape(ELEMENTS // (heads * length), length, width, heads=heads), dtype)
        for dtype in DTYPES[effort]
        for width in WIDTHS[effort]
        for length in LENGTHS[effort]
    ]
