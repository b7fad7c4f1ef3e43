"""Sum of each row."""

from torch import Tensor

from jagged.kernels import sum_configs
from jagged.kernels._rows import reduce_rows, spread_rows
from jagged.tuning.configs import ConfigTable

FORWARD = ConfigTable(sum_configs.FORWARD)
BACKWARD = ConfigTable(sum_configs.BACKWARD)


def forward(values: Tensor, offsets: Tensor) -> Tensor:
    return reduce_rows(values, offsets, FORWARD, mean=False)


def backward(grad: Tensor, offsets: Tensor, total: int) -> Tensor:
    return spread_rows(grad, offsets, total, BACKWARD, mean=False)
