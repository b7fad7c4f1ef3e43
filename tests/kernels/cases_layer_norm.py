from typing import Any

import torch

from jagged.tuning.configs import Config
from tests.kernels.cases import Case, Make

FORWARD = {
    "row": {"FORWARD": Config({"block_sizes": [32]}, "row", {"DEEP": 2, "BLOCK": 8})},
    "once": {"FORWARD": Config({"block_sizes": [4]}, "rows", {"BLOCK": 64})},
    "trips": {"FORWARD": Config({"block_sizes": [4]}, "rows", {"BLOCK": 4})},
}
ROW = {"DEEP": 2, "BLOCK": 8, "TURNS": 1}
BACKWARD = {
    "row": {"BACKWARD": Config({"block_sizes": [32]}, "row", ROW)},
    "turns": {"BACKWARD": Config({"block_sizes": [32]}, "row", ROW | {"DEEP": 1, "TURNS": 3})},
    "once": {"BACKWARD": Config({}, "rows", {"BLOCK": 64, "ROWS": 4, "TURNS": 1})},
    "trips": {"BACKWARD": Config({}, "rows", {"BLOCK": 4, "ROWS": 2, "TURNS": 2})},
}
TOKEN = {"small": {"FORWARD": Config({"block_sizes": [16]})}}
TOKEN_BACKWARD = {"small": {"BACKWARD": Config({}, constants={"BLOCK": 16, "PROGRAMS": 2})}}


def forward(make: Make) -> tuple[Any, ...]:
    weight = make.dense(make.width, dtype=torch.float32)
    bias = make.dense(make.width, dtype=torch.float32)
    return make.values(make.width), make.offsets(), weight, bias, 1e-5


def backward(make: Make) -> tuple[Any, ...]:
    grad, values = make.values(make.width), make.values(make.width)
    mean, rstd = make.per_row(dtype=torch.float32), make.per_row(dtype=torch.float32)
    return grad, values, make.offsets(), mean, rstd, make.dense(make.width), True


def token_forward(make: Make) -> tuple[Any, ...]:
    values, offsets, weight, bias, eps = forward(make)
    return values, weight, bias, eps, offsets


def token_backward(make: Make) -> tuple[Any, ...]:
    grad, values = make.values(make.width), make.values(make.width)
    # The forward leaves 0 in the tail.
    mean = make.values(dtype=torch.float32).nan_to_num()
    rstd = make.values(dtype=torch.float32).nan_to_num()
    return grad, values, mean, rstd, make.dense(make.width), True, make.offsets()


def plain(arguments: Any, *places: int) -> Any:
    """The same arguments without weight, bias or offsets."""

    def chosen(make: Make) -> tuple[Any, ...]:
        return tuple(
            False if arg is True and i in places else None if i in places else arg
            for i, arg in enumerate(arguments(make))
        )

    return chosen


ROW_PLAIN = {"row": FORWARD["row"]}
CASES = [
    Case("layer_norm", "forward", forward, FORWARD, widths=(25, 32, 1, 3)),
    Case("layer_norm", "forward", plain(forward, 2, 3), ROW_PLAIN, label="plain"),
    Case("layer_norm", "backward", backward, BACKWARD, widths=(25, 32, 1, 3), tolerance=16),
    Case("token_layer_norm", "forward", token_forward, TOKEN, widths=(25, 32, 1, 3)),
    Case("token_layer_norm", "backward", token_backward, TOKEN_BACKWARD, tolerance=16),
]
