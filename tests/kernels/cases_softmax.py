from collections.abc import Mapping
from typing import Any

from jagged.tuning.configs import Config
from tests.kernels.cases import Case, Make


def forms(table: str) -> Mapping[str, Mapping[str, Config]]:
    """`row` in several blocks; `rows` in one trip, and with rows too long for it."""
    row = Config({"block_sizes": [32, 16]}, "row", {"DEEP": 2, "BLOCK": 8})
    once = Config({"block_sizes": [4, 32]}, "rows", {"BLOCK": 64})
    trips = Config({"block_sizes": [2, 16]}, "rows", {"BLOCK": 4})
    return {"row": {table: row}, "once": {table: once}, "trips": {table: trips}}


def forward(make: Make, max_length: int | None) -> tuple[Any, ...]:
    return make.values(make.width), make.offsets(), max_length


def backward(make: Make, max_length: int | None) -> tuple[Any, ...]:
    return make.values(make.width), make.values(make.width), make.offsets(), max_length


CASES = [
    Case("softmax", "forward", lambda make: forward(make, None), forms("FORWARD")),
    Case("softmax", "forward", lambda make: forward(make, 7), forms("FORWARD"), label="limit"),
    Case("softmax", "backward", lambda make: backward(make, None), forms("BACKWARD")),
    Case("softmax", "backward", lambda make: backward(make, 7), forms("BACKWARD"), label="limit"),
]
