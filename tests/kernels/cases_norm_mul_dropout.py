from typing import Any

import torch
from torch import Tensor

from jagged.tuning.configs import Config
from tests.kernels.cases import Case, Make

FORWARD = {"small": {"FORWARD": Config({"block_sizes": [16]})}}
BACKWARD = {"small": {"BACKWARD": Config({}, constants={"BLOCK": 16, "PROGRAMS": 2})}}
SEED = 0x1234567_89ABCDEF


def seed(make: Make) -> Tensor:
    """An int64 that the compiler's tensors can have as well."""
    return make.offsets()[:1].to(torch.int64) + SEED


def forward(make: Make) -> tuple[Any, ...]:
    """As production's layer in training: everything at once."""
    values, u = make.values(make.width), make.values(make.width)
    weight = make.dense(make.width, dtype=torch.float32)
    bias = make.dense(make.width, dtype=torch.float32)
    return values, u, weight, bias, 1e-5, True, True, 0.3, seed(make), make.offsets()


def backward(make: Make) -> tuple[Any, ...]:
    width = make.width
    grad, values, u = make.values(3 * width), make.values(width), make.values(width)
    # The forward leaves 0 in the tail.
    mean = make.values(1, dtype=torch.float32).nan_to_num()
    rstd = make.values(1, dtype=torch.float32).nan_to_num()
    weight, bias = make.dense(width), make.dense(width)
    options = True, True, 0.3, seed(make), make.offsets()
    return grad, values, u, mean, rstd, weight, bias, True, *options


CASES = [
    Case("norm_mul_dropout", "forward", forward, FORWARD, widths=(25, 32, 1, 3)),
    Case("norm_mul_dropout", "backward", backward, BACKWARD, tolerance=16),
]
