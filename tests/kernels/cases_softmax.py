from collections.abc import Mapping
from typing import Any

from jagged.tuning.configs import Config
from tests.kernels.cases import Case, Make


def forms(table: str) -> Mapping[str, Mapping[str, Config]]:
    """`row` in several blocks; `rows` in one trip, and with rows too long for it; `held` in each of
    its sizes, and with rows too long for all."""
    row = Config({"block_sizes": [32, 16]}, "row", {"DEEP": 2, "BLOCK": 8})
    once = Config({"block_sizes": [4, 32]}, "rows", {"BLOCK": 64})
    trips = Config({"block_sizes": [2, 16]}, "rows", {"BLOCK": 4})
    found = {"row": {table: row}, "once": {table: once}, "trips": {table: trips}}
    if table == "FORWARD":
        held = Config({"block_sizes": [16]}, "held", {"HELD": 16, "BLOCK": 8})
        found["held"] = {table: held}
    return found


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
