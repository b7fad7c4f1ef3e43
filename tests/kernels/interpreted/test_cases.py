"""Every case and form under Triton's interpreter, against float64.

Four settings cover the dtypes of values and offsets, both program orders, and two layouts: `plain`,
and `harsh`, where values are a strided view with NaN between its rows and behind its last row.
"""

import itertools
import zlib
from typing import Any, NamedTuple

import pytest
import torch
import triton.runtime.interpreter
from torch import Tensor

from jagged.kernels.hstu_attention.short import Slots
from jagged.tuning.configs import ConfigTable
from tests.kernels.buffers import Guarded
from tests.kernels.cases import Case, all_cases
from tests.kernels.cases_hstu_attention import DIRECT, SEARCH, SHORT
from tests.kernels.interpreter import reversed_set_grid_idx

LENGTHS = {
    "rows": (5, 0, 37, 1, 0, 16, 0),
    "one": (19,),
    "empty": (0, 0, 0),
}
TAIL = 6


class Setting(NamedTuple):
    dtype: torch.dtype
    offsets: torch.dtype
    harsh: bool
    backwards: bool


SETTINGS = {
    "float32": Setting(torch.float32, torch.int64, harsh=False, backwards=False),
    "float32-harsh": Setting(torch.float32, torch.int32, harsh=True, backwards=True),
    "bfloat16-harsh": Setting(torch.bfloat16, torch.int64, harsh=True, backwards=False),
    "float16": Setting(torch.float16, torch.int32, harsh=False, backwards=True),
}


class RealMake:
    """`tests.kernels.cases.Make` with guarded CPU tensors of normal random numbers."""

    def __init__(self, lengths: tuple[int, ...], width: int, setting: Setting, seed: int) -> None:
        self.guarded = Guarded()
        self.dtype = setting.dtype
        self.harsh = setting.harsh
        self.rows = len(lengths)
        self.filled = sum(lengths)
        self.total = self.filled + (TAIL if setting.harsh else 0)
        self.width = width
        self.longest = max(lengths)
        self._generator = torch.Generator().manual_seed(seed)
        bounds = torch.tensor([0, *lengths]).cumsum(0)
        self._offsets = self.guarded.input(bounds.to(setting.offsets))

    def offsets(self) -> Tensor:
        return self._offsets

    def values(self, *trailing: int, dtype: torch.dtype | None = None) -> Tensor:
        data = self._random((self.total, *trailing), dtype)
        data[self.filled :] = float("nan")
        return self.guarded.input(data, gap=8 if self.harsh else 0)

    def per_row(self, *trailing: int, dtype: torch.dtype | None = None) -> Tensor:
        return self.dense(self.rows, *trailing, dtype=dtype)

    def dense(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        gap = 8 if self.harsh and len(shape) > 1 else 0
        return self.guarded.input(self._random(shape, dtype), gap=gap)

    def _random(self, shape: tuple[int, ...], dtype: torch.dtype | None) -> Tensor:
        return torch.randn(shape, generator=self._generator).to(dtype or self.dtype)


def as_tuple(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def doubled(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        arg.double() if isinstance(arg, Tensor) and arg.is_floating_point() else arg for arg in args
    )


def runs(case: Case) -> list[Any]:
    """Each form with each setting, the widths in turn; one row and no elements once a form."""
    made = []
    for form in case.forms:
        widths = itertools.cycle(case.widths)
        for setting in SETTINGS:
            made.append((case, form, next(widths), setting, "rows"))
        for lengths in ("one", "empty"):
            made.append((case, form, case.widths[-1], "float32-harsh", lengths))
    return [pytest.param(*run, id="-".join(map(str, run))) for run in made]


@pytest.mark.parametrize(
    ("case", "form", "width", "setting", "lengths"),
    [run for case in all_cases() for run in runs(case)],
)
def test_equals_the_oracle(
    case: Case,
    form: str,
    width: int,
    setting: str,
    lengths: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = SETTINGS[setting]
    builder = triton.runtime.interpreter.InterpreterBuilder
    if chosen.backwards:
        monkeypatch.setattr(builder, "set_grid_idx", reversed_set_grid_idx(builder.set_grid_idx))
    module = case.module()
    for table, config in case.forms[form].items():
        owner = getattr(module, table)
        assert isinstance(owner, ConfigTable)
        monkeypatch.setattr(owner, "pick", lambda *_, config=config: config)
    seed = zlib.crc32(f"{case} {form} {width} {setting} {lengths}".encode())
    make = RealMake(LENGTHS[lengths], width, chosen, seed)
    args = case.arguments(make)

    with make.guarded.allocations():
        result = as_tuple(getattr(module, case.direction)(*args))

    make.guarded.check()
    assert len({id(ours) for ours in result}) == len(result), "a tensor is returned twice"
    expected = as_tuple(case.answer(*doubled(args)))
    assert len(result) == len(expected)
    for index, (ours, answer) in enumerate(zip(result, expected, strict=True)):
        assert ours.shape == answer.shape, f"output {index}"
        if not ours.is_floating_point():
            torch.testing.assert_close(ours, answer, rtol=0, atol=0)
            continue
        largest = answer.abs().max().item() if answer.numel() else 0.0
        allowed = case.tolerance * torch.finfo(chosen.dtype).eps * largest
        torch.testing.assert_close(
            ours.double(),
            answer,
            rtol=0,
            atol=allowed,
            msg=lambda text, index=index: f"output {index}: {text}",
        )


@pytest.mark.parametrize(("cut", "levels"), [(0, 1), (SEARCH, 1), (DIRECT, 0)])
def test_rows_of_short_attention_are_found_as_the_cases_say(cut: int, levels: int) -> None:
    lengths = LENGTHS["rows"]
    longest, block = max(lengths) - cut, SHORT.constants["BLOCK"]
    for total in (sum(lengths), sum(lengths) + TAIL):
        assert Slots.of(total, len(lengths), longest, block).levels == levels
