"""The relative bias of HSTU attention for one tile of rows: looked up, and its gradient summed."""

from typing import NamedTuple

import torch
from torch import Tensor

from jagged.eager._hstu_mask import Block


class Bias(NamedTuple):
    """The tables and what leads to their entries."""

    position_table: Tensor | None  # [2 * N - 1]
    time_table: Tensor | None  # [buckets + 1]
    timestamps: Tensor | None  # [T]
    bucket: str
    divisor: float

    def is_given(self) -> bool:
        return self.position_table is not None or self.time_table is not None

    def to(self, dtype: torch.dtype) -> "Bias":
        """The same with tables in `dtype`."""
        position, time = self.position_table, self.time_table
        return self._replace(
            position_table=None if position is None else position.to(dtype),
            time_table=None if time is None else time.to(dtype),
        )

    def of_tile(self, element: Tensor, stop: Tensor) -> "TileBias":
        """For rows that hold the elements `element` [R, n] and end before `stop` [R, 1]."""
        if self.time_table is None or self.timestamps is None:
            return TileBias(self, None, None)
        following = torch.minimum(element + 1, stop - 1)
        return TileBias(self, self.timestamps[following], self.timestamps[element])


class TileBias(NamedTuple):
    """The bias of one tile; times are [R, n] where there is a time table."""

    bias: Bias
    query_time: Tensor | None
    key_time: Tensor | None

    def block(self, block: Block) -> "BlockBias":
        """The entries that the pairs of `block` take."""
        bias, position, bucket = self.bias, None, None
        if bias.position_table is not None:
            table = bias.position_table
            query = torch.arange(block.query_start, block.query_end, device=table.device)
            key = torch.arange(block.key_start, block.key_end, device=table.device)
            position = key - query[:, None] + (table.shape[0] - 1) // 2
            # Only padding reaches beyond the table.
            position.clamp_(0, table.shape[0] - 1)
        if (
            bias.time_table is not None
            and self.query_time is not None
            and self.key_time is not None
        ):
            query = self.query_time[:, block.queries, None]
            key = self.key_time[:, None, block.keys]
            apart = (query - key).abs_().clamp_(min=1).to(torch.float32)
            level = apart.log_() if bias.bucket == "log" else apart.sqrt_()
            level.div_(bias.divisor).clamp_(max=bias.time_table.shape[0] - 1)
            bucket = level.to(torch.int64)
        return BlockBias(bias, position, bucket)


class BlockBias(NamedTuple):
    """The entries of the two tables for the pairs of one block."""

    bias: Bias
    position: Tensor | None  # [queries, keys]
    bucket: Tensor | None  # [R, queries, keys]

    def add_to(self, scores: Tensor) -> None:
        """Add the bias to `scores` [H, R, queries, keys]."""
        if self.position is not None and self.bias.position_table is not None:
            scores += _look_up(self.bias.position_table, self.position)
        if self.bucket is not None and self.bias.time_table is not None:
            scores += _look_up(self.bias.time_table, self.bucket)

    def add_gradient(self, grad: Tensor, position: Tensor | None, time: Tensor | None) -> None:
        """Add `grad` [R, queries, keys] to the entries of `position` and `time`, in float64.

        An entry is a sum over many pairs, added one by one: float32 would not do.
        """
        if time is not None and self.bucket is not None:
            time.index_add_(0, self.bucket.flatten(), grad.flatten().to(time.dtype))
        if position is not None and self.position is not None:
            of_rows = grad.sum(0, dtype=position.dtype)
            position.index_add_(0, self.position.flatten(), of_rows.flatten())


def _look_up(table: Tensor, entry: Tensor) -> Tensor:
    return table.index_select(0, entry.flatten()).view(entry.shape)
