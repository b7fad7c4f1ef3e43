"""Spaces, and which of their configs a search measures."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from jagged.tuning.search import QUICK, Measure, Measured, key_of, search
from jagged.tuning.space import Space, everything, neighbours, powers, up_to_width

POINT = (2, 100, 64)
SPACE = Space("row", [powers(8, 64)], warps=(1, 2, 4), DEEP=(1, 2, 4))
START = {"block_sizes": [8], "num_warps": 1, "form": "row", "constants": {"DEEP": 1}}


def cost(config: Any) -> float:
    """Least for 32, 2 and 2, and smooth."""
    block, warps = config["block_sizes"][0], config["num_warps"]
    deep = config["constants"]["DEEP"]
    return 1 + abs(math.log2(block / 32)) + abs(math.log2(warps / 2)) + abs(math.log2(deep / 2))


class Costs:
    """A deterministic measure that counts."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, configs: Sequence[Any]) -> list[float]:
        self.seen += configs
        return [cost(config) for config in configs]


def run(effort: str, stopped: bool = False, start: Any = START) -> tuple[Measured, Costs]:
    measured, costs = Measured(), Costs()
    search(measured, [SPACE], POINT, [start], effort, costs, lambda: stopped)
    return measured, costs


def test_the_whole_space_is_tried_once() -> None:
    measured, costs = run("full")
    assert len(costs.seen) == len(measured.times) == 4 * 3 * 3
    assert cost(measured.configs[measured.best()]) == 1


def test_a_climb_finds_the_best_with_fewer() -> None:
    measured, costs = run("quick")
    assert cost(measured.configs[measured.best()]) == 1
    assert len(costs.seen) == len({key_of(config) for config in costs.seen}) < 36
    assert len(costs.seen) <= QUICK
    assert costs.seen[0] == START


def test_time_is_up() -> None:
    for effort in ("quick", "full"):
        measured, _ = run(effort, stopped=True)
        assert list(measured.configs.values()) == [START]


def test_where_nothing_known_runs_the_search_looks_all_over() -> None:
    measured = Measured()

    def fussy(configs: Sequence[Any]) -> list[float]:
        return [cost(c) if c["block_sizes"][0] > 8 else math.inf for c in configs]

    search(measured, [SPACE], POINT, [START], "quick", fussy, lambda: False)
    assert cost(measured.configs[measured.best()]) == 1


def test_nothing_runs_at_all() -> None:
    measured = Measured()
    never: Measure = lambda configs: [math.inf] * len(configs)  # noqa: E731
    search(measured, [SPACE], POINT, [START], "quick", never, lambda: False)
    assert 1 < len(measured.times) < 36


def test_other_forms_are_tried_from_the_table_alone() -> None:
    foreign = {"block_sizes": [8, 8], "num_warps": 1}
    assert list(neighbours([SPACE], POINT, foreign)) == []
    assert len(list(everything([SPACE], POINT, foreign))) == 36


def test_neighbours_are_one_step_away() -> None:
    config = SPACE.config({"block_sizes 0": 16, "num_warps": 4, "constant DEEP": 2}, {})
    found = [(c["block_sizes"][0], c["num_warps"], c["constants"]["DEEP"])
             for c in neighbours([SPACE], POINT, config)]  # fmt: skip
    assert sorted(found) == [(8, 4, 2), (16, 2, 2), (16, 4, 1), (16, 4, 4), (32, 4, 2)]


def test_a_config_between_the_choices_has_neighbours() -> None:
    config = {**START, "block_sizes": [24]}
    assert {c["block_sizes"][0] for c in neighbours([SPACE], POINT, config)} == {16, 24, 32}


def test_what_a_space_leaves_alone_is_kept() -> None:
    base = {"num_warps": 1, "form": "short", "constants": {"WIDTH": 64, "BLOCK": 16}, "maxnreg": 64}
    space = Space("short", warps=(2,), BLOCK=(32,))
    made = list(everything([space], POINT, base))
    constants = {"WIDTH": 64, "BLOCK": 32}
    assert made == [{"num_warps": 2, "maxnreg": 64, "form": "short", "constants": constants}]
    other = list(everything([Space("long", warps=(2,), BLOCK=(32,))], POINT, base))
    assert other == [{"num_warps": 2, "form": "long", "constants": {"BLOCK": 32}}]


def test_loops_are_pipelined_or_not() -> None:
    space = Space("row", warps=(1,), loops=[(), (0, 3)])
    plain = {"num_warps": 1, "form": "row"}
    deep = {**plain, "range_num_stages": [0, 3]}
    for base in (plain, deep):
        assert list(everything([space], POINT, base)) == [plain, deep]
    assert list(neighbours([space], POINT, plain)) == [deep]
    assert list(neighbours([space], POINT, deep)) == [plain]
    assert list(neighbours([space], POINT, {**plain, "range_num_stages": [4, 4]})) == []


@pytest.mark.parametrize(
    ("width", "choices"),
    [(1, [1]), (16, [16]), (32, [32]), (100, [32, 64, 128]), (1000, [32, 64, 128])],
)
def test_blocks_up_to_the_width(width: int, choices: list[int]) -> None:
    assert up_to_width(32, 128)((2, width, 64)) == choices


def test_powers() -> None:
    assert powers(2, 16) == (2, 4, 8, 16)
