"""No shipped product reads a pipelined buffer both by wgmma and by other instructions.

Triton 3.6 gives the buffer of such a load a slot too few (triton-lang/triton#7110): the copy of a
later block lands where an unfinished wgmma still reads. Whether that shows depends on timing.
"""

import re
from typing import Any

import pytest

from jagged.tuning.offline import compile_kernel
from tests.kernels.cases import Case
from tests.kernels.compiled.test_cubins import launches, shipped

ALLOCATED = re.compile(r"(%[\w#]+) = ttg\.local_alloc :")  # filled by copies, not by a value
VIEW = re.compile(r"(%[\w#]+) = ttg\.memdesc_\w+ (%[\w#]+)")
READ = re.compile(r"= (ttng\.warp_group_dot|ttg\.local_load) (.*?) :")
PRODUCTS = [
    parameter
    for parameter in shipped()
    if parameter.values[0].product and parameter.values[2][0] == 2
]


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


@pytest.mark.parametrize(("case", "table", "point", "config"), PRODUCTS)
def test_pipelined_buffers_feed_only_wgmma(
    case: Case, table: str, point: Any, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getattr(case.module(), table), "pick", lambda *_: config)
    texts = [
        cubin.ttgir
        for kernel, chosen, args in launches(case, point)
        if chosen is config
        for cubin in compile_kernel(kernel, config, args)
    ]
    assert texts
    for text in texts:
        assert not read_both_ways(text)
