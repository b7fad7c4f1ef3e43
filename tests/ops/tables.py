"""Six answers written by hand: every reduction of a row, and its gradient, with empty rows.

They serve `sum` and `mean` directly, and the ops that reduce on the way: `jagged_bmm` with ones,
the gradient of `row_add`, `softmax` of equal elements, `to_padded`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

NAN = float("nan")


@dataclass(frozen=True)
class Table:
    """One jagged tensor and what its rows give."""

    name: str
    values: Any
    offsets: list[int]
    sum: Any
    mean: Any
    shares: list[float]  # 1 / length of each element's row, 0 in the tail: the gradient of mean
    padded: Any  # to N = 2, with 9
    shape: tuple[int, ...] = ()  # of one element

    def tensors(
        self, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        values = torch.tensor(self.values, device=device, dtype=dtype)
        total = len(self.shares)
        return values.reshape(total, *self.shape), torch.tensor(self.offsets, device=device)

    def answer(self, name: str, device: torch.device) -> Tensor:
        rows = len(self.offsets) - 1
        shape = (rows, 2, *self.shape) if name == "padded" else (rows, *self.shape)
        return torch.tensor(getattr(self, name), device=device, dtype=torch.float32).reshape(shape)

    def __str__(self) -> str:
        return self.name


TABLES = [
    Table(
        "numbers",
        values=[1, 2, 3, 4],
        offsets=[0, 3, 3, 4],
        sum=[6, 0, 4],
        mean=[2, 0, 4],
        shares=[1 / 3, 1 / 3, 1 / 3, 1],
        padded=[[1, 2], [9, 9], [4, 9]],
    ),
    Table(
        "pairs",
        values=[[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12]],
        offsets=[0, 2, 2, 6],
        sum=[[4, 6], [0, 0], [32, 36]],
        mean=[[2, 3], [0, 0], [8, 9]],
        shares=[0.5, 0.5, 0.25, 0.25, 0.25, 0.25],
        padded=[[[1, 2], [3, 4]], [[9, 9], [9, 9]], [[5, 6], [7, 8]]],
        shape=(2,),
    ),
    Table(
        "empty at both ends",
        values=[[5], [-5], [1]],
        offsets=[0, 0, 0, 2, 3, 3],
        sum=[[0], [0], [0], [1], [0]],
        mean=[[0], [0], [0], [1], [0]],
        shares=[0.5, 0.5, 1],
        padded=[[[9], [9]], [[9], [9]], [[5], [-5]], [[1], [9]], [[9], [9]]],
        shape=(1,),
    ),
    Table(
        "nothing but empty rows",
        values=[],
        offsets=[0, 0, 0],
        sum=[[0, 0], [0, 0]],
        mean=[[0, 0], [0, 0]],
        shares=[],
        padded=[[[9, 9], [9, 9]], [[9, 9], [9, 9]]],
        shape=(2,),
    ),
    Table(
        "a tail of capacity",
        values=[1, 2, 4, NAN, NAN],
        offsets=[0, 1, 1, 3],
        sum=[1, 0, 6],
        mean=[1, 0, 3],
        shares=[1, 0.5, 0.5, 0, 0],
        padded=[[1, 9], [9, 9], [2, 4]],
    ),
    Table(
        "matrices",
        values=[[[1, 0], [2, -1]], [[3, 0], [4, 1]], [[5, 6], [7, 8]]],
        offsets=[0, 2, 3, 3],
        sum=[[[4, 0], [6, 0]], [[5, 6], [7, 8]], [[0, 0], [0, 0]]],
        mean=[[[2, 0], [3, 0]], [[5, 6], [7, 8]], [[0, 0], [0, 0]]],
        shares=[0.5, 0.5, 1],
        padded=[
            [[[1, 0], [2, -1]], [[3, 0], [4, 1]]],
            [[[5, 6], [7, 8]], [[9, 9], [9, 9]]],
            [[[9, 9], [9, 9]], [[9, 9], [9, 9]]],
        ],
        shape=(2, 2),
    ),
]
