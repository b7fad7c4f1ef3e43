"""Every shipped configuration compiled for the H200: it fits, does not spill, and uses wgmma."""

from typing import Any

import pytest
import torch
from torch import Tensor

from jagged.tuning.configs import Capability, Config, ConfigTable, Point
from jagged.tuning.launch import Launchable
from jagged.tuning.offline import H200, compile_kernel
from tests.kernels.cases import Case, all_cases

ROWS = 64
MOST = 2**18  # elements: no operand reaches 2^31 of them, however wide its heads
DTYPES = {2: torch.bfloat16, 4: torch.float32}


class MetaMake:
    """`tests.kernels.cases.Make` with tensors that have no memory."""

    def __init__(self, point: Point) -> None:
        itemsize, self.width, length = point
        self.dtype = DTYPES[itemsize]
        self.rows = max(1, min(ROWS, MOST // max(length, 1)))
        self.total = self.rows * max(length, 1)
        self.longest = 2 * length

    def offsets(self) -> Tensor:
        return torch.empty(self.rows + 1, dtype=torch.int64, device="meta")

    def values(self, *trailing: int, dtype: torch.dtype | None = None) -> Tensor:
        return self.dense(self.total, *trailing, dtype=dtype)

    def per_row(self, *trailing: int, dtype: torch.dtype | None = None) -> Tensor:
        return self.dense(self.rows, *trailing, dtype=dtype)

    def dense(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.empty(shape, dtype=dtype or self.dtype, device="meta")


Launch = tuple[Launchable, Config, tuple[Any, ...]]


def launches(case: Case, point: Point) -> list[Launch]:
    """What one call of the case would launch."""
    seen: list[Launch] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Launchable, "__call__", lambda *launch: seen.append((*launch[:2], launch[2:]))
        )
        getattr(case.module(), case.direction)(*case.arguments(MetaMake(point)))
    return seen


def shipped() -> list[Any]:
    """Every config at every width; of points that differ in the length alone, the longest."""
    found = []
    for case in all_cases():
        for table in sorted({name for tables in case.forms.values() for name in tables}):
            owner: ConfigTable = getattr(case.module(), table)
            points = {
                (*point[:2], config): point
                for (capability, point), config in sorted(owner.all().items(), key=_place)
                if capability == H200.capability
            }
            found += [
                pytest.param(case, table, point, config, id=f"{case}-{table}-{point}")
                for (*_, config), point in points.items()
            ]
    return found


def _place(entry: tuple[tuple[Capability, Point], Config]) -> tuple[Capability, Point]:
    return entry[0]


@pytest.mark.parametrize(("case", "table", "point", "config"), shipped())
def test_fits_without_spills(
    case: Case, table: str, point: Point, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = getattr(case.module(), table)
    monkeypatch.setattr(owner, "pick", lambda *_: config)
    which = f"{config} of {owner} at {point}"
    again = f"tune it again: python -m jagged.tuning tune --op {case.op}"
    try:
        compiled = [
            cubin
            for kernel, chosen, args in launches(case, point)
            if chosen is config
            for cubin in compile_kernel(kernel, config, args)
        ]
    except Exception as error:
        raise AssertionError(f"{which} does not compile: {error}; {again}") from error
    assert compiled, f"{which} is not used by this case"
    for cubin in compiled:
        where = f"{cubin.name} with {which}"
        assert cubin.shared <= H200.shared_memory, f"{where} does not fit; {again}"
        if f"{table}-{point}" not in case.spills:
            assert cubin.stack == 0, f"{where} spills {cubin.stack} bytes; {again}"
        # It takes 64 rows: where smaller blocks are faster, the older instruction does it.
        blocks = [size for name, size in config.constants.items() if name.startswith("BLOCK")]
        if case.product and point[0] == 2 and max(blocks, default=64) >= 64:
            assert cubin.wgmma > 0, f"{where} has no wgmma; {again}"
