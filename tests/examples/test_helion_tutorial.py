"""Every step of the tutorial runs on the CPU and checks itself; each rule is among the checks."""

import os
import re
import subprocess
import sys

import pytest

from examples.helion_tutorial import STEPS
from tests.processes import python_path

RUN = """
import torch
from examples.helion_tutorial.__main__ import main
from examples.helion_tutorial.workshop import check, refused

main()
print("10. failures")
right = torch.ones(3)
for call in (
    lambda: check("wrong", right * 1.01, right),
    lambda: check("wrong", torch.ones(2), right),
    lambda: refused("nothing", ValueError, "a reason", lambda: None),
):
    try:
        call()
    except AssertionError as error:
        print(error)
"""

# What a step must have shown, in this order.
SHOWN = {
    "tiles": ["ok: x + y", "16 programs", "ok: tile of each element", "64 programs"],
    "softmax": [
        "m = 4.0, d = 1.5530",
        "ok: softmax in one line",
        "ok: softmax in two passes",
        "ok: float16, large values",
    ],
    "matmul": ["ok: x @ y", "ok: relu(linear(x))"],
    "configs": [
        "ok: block_sizes=[1, 128, 128], num_warps=1",
        "ok: block_sizes=[64, 256, 256], num_warps=8",
        'saved: {"block_sizes": [16, 64, 64], "num_warps": 2}',
        "ok: with the loaded config",
        "refused: a config with too few block sizes: InvalidConfig",
    ],
    "triton_code": [
        "tl.load",
        "tl.store",
        "static_shapes=True",
        "static_shapes=False",
        "hl.specialize(width)",
        "mark_static(x, 1)",
        "index_dtype=torch.int64",
        "ok: marked",
        "ok: routed by hand, 300 rows",
    ],
    "tuning": [
        "ok: x * y, 5000 elements",
        "chosen for 100 elements: Config(block_sizes=",
        "ok: with the config of a search",
        "found: Config(",
        "ok: with the best of the cache",
    ],
    "deployment": [
        "ok: width 48",
        "chosen: Config(block_sizes=[32, 64]",
        "ok: width 200",
        "chosen: Config(block_sizes=[8, 256]",
    ],
    "jagged_tiles": [
        "ok: one parent",
        "ok: the same by hand, with extra_mask",
        "ok: nested: elements x features",
        "ok: softmax along each row",
        "ok: a program for each row",
        "ok: jagged.ops.softmax",
    ],
    "jagged_refusals": [
        "refused: outermost: InvalidJaggedTileUsage",
        "refused: a parent of no tile: InvalidJaggedTileUsage",
        "refused: x[tile_k] without its parent: InvalidJaggedTileUsage",
        "refused: a scalar parent: InvalidJaggedTileUsage",
        "refused: a mean over the jagged dimension",
        "ok: x[tile_b, tile_k]",
    ],
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each step prints, in a process of its own, since Triton interprets or compiles."""
    environment = {name: value for name, value in os.environ.items() if "HELION" not in name}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}
    environment |= {"TRITON_INTERPRET": "1", "PYTHONPATH": python_path()}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=tmp_path_factory.mktemp("tutorial"),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    parts = re.split(r"^\d+\. (\w+)\n", done.stdout, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_all_steps_have_an_expectation() -> None:
    assert tuple(SHOWN) == STEPS


@pytest.mark.parametrize("step", STEPS)
def test_a_step_shows_what_it_teaches(step: str, printed: dict[str, str]) -> None:
    place = 0
    for text in SHOWN[step]:
        found = printed[step].find(text, place)
        assert found >= 0, f"{text!r} is not after the others in:\n{printed[step]}"
        place = found + len(text)


def test_a_wrong_result_ends_a_step(printed: dict[str, str]) -> None:
    assert [line.strip() for line in printed["failures"].splitlines()] == [
        "wrong: off by 1.00e-02",
        "wrong: torch.Size([2]) instead of torch.Size([3])",
        "nothing: 'a reason' was expected: nothing was raised",
    ]
