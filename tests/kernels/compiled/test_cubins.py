"""Every shipped configuration compiled for the H200: it fits, does not spill, and uses wgmma.

And no product reads a pipelined buffer both by wgmma and by other instructions: Triton 3.6 gives
the buffer of such a load a slot too few (triton-lang/triton#7110), so that the copy of a later
block lands where an unfinished wgmma still reads. Whether that shows depends on timing.
"""

import re
from operator import itemgetter
from typing import Any

import pytest
import torch
from torch import Tensor

from jagged.tuning.configs import Config, ConfigTable, Point
from jagged.tuning.launch import Launchable
from jagged.tuning.offline import H200, compile_kernel
from tests.kernels.cases import Case, all_cases

ROWS = 64
MOST = 2**18  # elements: no operand reaches 2^31 of them, however wide its heads
ALLOCATED = re.compile(r"(%[\w#]+) = ttg\.local_alloc :")  # filled by copies, not by a value
VIEW = re.compile(r"(%[\w#]+) = ttg\.memdesc_\w+ (%[\w#]+)")
READ = re.compile(r"= (ttng\.warp_group_dot|ttg\.local_load) (.*?) :")
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
                for (capability, point), config in sorted(owner.all().items(), key=itemgetter(0))
                if capability == H200.capability
            }
            found += [
                pytest.param(case, table, point, config, id=f"{case}-{table}-{point}")
                for (*_, config), point in points.items()
            ]
    return found


@pytest.mark.parametrize(("case", "table", "point", "config"), shipped())
def test_fits_without_spills_and_pipelines_for_wgmma_alone(
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
        if case.product and point[0] == 2:
            # wgmma takes 64 rows: where smaller blocks are faster, mma.sync multiplies.
            blocks = [size for name, size in config.constants.items() if name.startswith("BLOCK")]
            if max(blocks, default=64) >= 64:
                assert cubin.wgmma > 0, f"{where} has no wgmma; {again}"
            mixed = read_both_ways(cubin.ttgir)
            assert not mixed, f"{where} reads {mixed} by wgmma and otherwise; {again}"


def read_both_ways(text: str) -> set[str]:
    """Buffers of TTGIR that wgmma and ordinary loads read."""
    buffers: dict[str, str] = {}
    readers: dict[str, set[str]] = {"ttng.warp_group_dot": set(), "ttg.local_load": set()}
    for line in text.splitlines():
        if found := ALLOCATED.search(line):
            buffers[found[1]] = found[1]
        elif (found := VIEW.search(line)) and found[2] in buffers:
            buffers[found[1]] = buffers[found[2]]
        elif found := READ.search(line):
            operands = re.findall(r"%[\w#]+", found[2])
            readers[found[1]] |= {buffers[name] for name in operands if name in buffers}
    return readers["ttng.warp_group_dot"] & readers["ttg.local_load"]


def test_a_mixed_buffer_is_found() -> None:
    safe = """
    %a = ttg.local_alloc : () -> !ttg.memdesc<1x32x128xbf16, #shared, #smem, mutable>
    %b = ttg.memdesc_index %a[%c] : !ttg.memdesc<1x32x128xbf16> -> !ttg.memdesc<32x128xbf16>
    %t = ttg.memdesc_trans %b {order = array<i32: 1, 0>} : !ttg.memdesc<32x128xbf16>
    %p = ttng.warp_group_dot %t, %other, %sum {isAsync = true} : !ttg.memdesc<128x32xbf16>
    """
    assert read_both_ways(safe) == set()
    load = "%r = ttg.local_load %b token %w : !ttg.memdesc<32x128xbf16> -> tensor<32x128xbf16>"
    assert read_both_ways(safe + load) == {"%a"}
