"""Encoders that add a learned vector for an element's place in its row, or for its age."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from jagged import checks
from jagged.layout import JaggedTensor
from jagged.modules._rows import (
    check_jagged,
    check_values,
    history_lengths,
    is_element,
    spread,
    zero_tail,
)


class PositionEncoder(nn.Module):
    """Add a learned vector for the position, counted back from the end of the history.

    With n the row length, t its number of targets, h = n - t its history, C contextual elements
    and P positions, element i of a row gets `out = x + weight[p]` where::

        p = i                                    for i < C
        p = min(h - min(i, h) + C, P - 1)        for i >= C

    The newest element of the history has p = C + 1 in every row, and all targets share p = C, so
    they can be scored in any order and number. Encoder of production HSTU (generative-recommenders,
    `add_timestamp_positional_embeddings`), for Zhai et al., arXiv 2402.17152.

    Args:
        num_positions: P; all elements further back share the last one.
        embedding_dim: D.
        contextual: C.

    Takes and returns a jagged tensor with values [T, D]. Parameter `weight` [P, D].
    """

    def __init__(
        self,
        num_positions: int,
        embedding_dim: int,
        contextual: int = 0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        checks.length("contextual", contextual)
        if num_positions <= contextual:
            raise ValueError(
                f"num_positions must be greater than contextual ({contextual}), "
                f"got {num_positions}: targets use the position after the context"
            )
        self.num_positions = num_positions
        self.embedding_dim = embedding_dim
        self.contextual = contextual
        self.weight = nn.Parameter(
            torch.empty(num_positions, embedding_dim, device=device, dtype=dtype)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in +-1 / sqrt(P)."""
        bound = 1 / math.sqrt(self.num_positions)
        nn.init.uniform_(self.weight, -bound, bound)

    def positions(self, x: JaggedTensor, num_targets: Tensor | None = None) -> Tensor:
        """The index p of every element [T], int64; 0 for the capacity tail."""
        if num_targets is not None:
            _check_integers("num_targets", num_targets, x, x.num_rows, "[B]")
        row = x.row_ids()
        start = spread(x.offsets[:-1], row)
        index = (torch.arange(row.shape[0], device=row.device) - start).clamp(min=0)
        history = spread(history_lengths(x, num_targets), row)
        back = history - torch.minimum(index, history) + self.contextual
        back = back.clamp(max=self.num_positions - 1)
        return torch.where(is_element(x), torch.where(index < self.contextual, index, back), 0)

    def forward(self, x: JaggedTensor, num_targets: Tensor | None = None) -> JaggedTensor:
        """Add the vectors; `num_targets` [B] are the last elements of each row, integers."""
        check_jagged("x", x)
        return _add_rows_of(self.weight, self.positions(x, num_targets), x)

    def extra_repr(self) -> str:
        return f"{self.num_positions}, {self.embedding_dim}, contextual={self.contextual}"


class TimestampEncoder(nn.Module):
    """Add a learned vector for the age of an element, counted from the last element of its row.

    Element i of a row whose last element has timestamp t_last gets `out = x + weight[b]` where::

        b = clamp(int(f(max(t_last - t_i, 1e-6) / unit)), 0, num_buckets)        f = sqrt or log

    Encoder of production HSTU (generative-recommenders, `add_timestamp_positional_embeddings`), for
    Zhai et al., arXiv 2402.17152.

    Args:
        num_buckets: the largest bucket; older elements share it.
        embedding_dim: D.
        bucket: f, "sqrt" or "log" (natural).
        unit: the time that one unit of f's argument takes, in units of the timestamps.

    Takes and returns a jagged tensor with values [T, D]. Parameter `weight` [num_buckets + 1, D].
    """

    def __init__(
        self,
        num_buckets: int,
        embedding_dim: int,
        bucket: Literal["sqrt", "log"] = "sqrt",
        unit: float = 60.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if num_buckets < 0:
            raise ValueError(f"num_buckets must not be negative, got {num_buckets}")
        if bucket not in ("sqrt", "log"):
            raise ValueError(f'bucket must be "sqrt" or "log", got {bucket!r}')
        if not unit > 0:
            raise ValueError(f"unit must be positive, got {unit}")
        self.num_buckets = num_buckets
        self.embedding_dim = embedding_dim
        self.bucket = bucket
        self.unit = unit
        self.weight = nn.Parameter(
            torch.empty(num_buckets + 1, embedding_dim, device=device, dtype=dtype)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in +-1 / sqrt(num_buckets)."""
        bound = 1 / math.sqrt(max(self.num_buckets, 1))
        nn.init.uniform_(self.weight, -bound, bound)

    def buckets(self, x: JaggedTensor, timestamps: Tensor) -> Tensor:
        """The index b of every element [T], int64; 0 for the capacity tail."""
        _check_integers("timestamps", timestamps, x, x.values.shape[0], "[T]")
        timestamps = timestamps.to(torch.int64)
        row = x.row_ids()
        last = (spread(x.offsets[1:], row) - 1).clamp(min=0, max=max(row.shape[0] - 1, 0))
        # The difference is exact in integers; its logarithm and root need no more than float32.
        age = (timestamps[last] - timestamps).to(torch.float32).clamp(min=1e-6) / self.unit
        scaled = age.log() if self.bucket == "log" else age.sqrt()
        bucket = scaled.clamp(min=0, max=self.num_buckets).to(torch.int64)
        return torch.where(is_element(x), bucket, 0)

    def forward(self, x: JaggedTensor, timestamps: Tensor) -> JaggedTensor:
        """Add the vectors; `timestamps` [T], integers."""
        check_jagged("x", x)
        return _add_rows_of(self.weight, self.buckets(x, timestamps), x)

    def extra_repr(self) -> str:
        return (
            f"{self.num_buckets}, {self.embedding_dim}, bucket={self.bucket!r}, unit={self.unit:g}"
        )


def _check_integers(name: str, value: Tensor, x: JaggedTensor, size: int, meaning: str) -> None:
    """`value` holds `size` integers beside x."""
    checks.tensor(name, value)
    checks.integers(name, value, bools=True)
    checks.same_device(name, value, "x.values", x.values)
    checks.shape(name, value, (size,), meaning)


def _add_rows_of(table: Tensor, index: Tensor, x: JaggedTensor) -> JaggedTensor:
    """`x + table[index]` in the dtype of x, with a zero tail."""
    check_values(x.values, (None, table.shape[1]), "[T, embedding_dim]")
    checks.floating("x.values", x.values)
    encoded = nn.functional.embedding(index, table).to(x.values.dtype)
    return x.with_values(zero_tail(x.values + encoded, is_element(x)))
