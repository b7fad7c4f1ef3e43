"""The records that describe HSTU attention: which pairs are kept, and the relative bias."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from jagged import checks


@dataclass(frozen=True)
class HSTUMask:
    """Which keys a query of HSTU attention sees; causal always.

    Args:
        window: how many ids back a query looks; 0 for no limit.
        contextual: the first `contextual` elements of a row are context: they see all context
            and history, and everybody sees them (under a window only while it reaches them).
        min_full: with a window, the last `min_full` ids (and the targets) are free of it.

    In generative-recommenders they are `max_attn_len`, `contextual_seq_len` and
    `min_full_attn_seq_len`.

    With n the row length, t its number of targets, C, W, F the three arguments::

        M0    = n - (C - 1 if C > 0 else 0) - t
        id(i) = max(i - C + 1, 0) if C > 0 else i, and at most M0 where targets are given
        keep  = query == key or d > 0                  d = id(query) - id(key)
        W > 0:  keep and (d <= W or (F > 0 and id(query) >= M0 - F))
        C > 0:  keep or (id(query) == 0 and id(key) < M0)

    Targets (the last t elements) see the history and themselves, never each other; contextual
    elements never see targets. `HSTUMask(contextual=2, window=2).picture(8, targets=2)`, a line
    a query, 1 where it sees the key::

        11111100
        11111100
        11100000
        11110000
        00111000
        00011100
        00001110
        00001101
    """

    window: int = 0
    contextual: int = 0
    min_full: int = 0

    def __post_init__(self) -> None:
        for name in ("window", "contextual", "min_full"):
            checks.length(name, getattr(self, name))
            object.__setattr__(self, name, int(getattr(self, name)))  # numpy's are no plain data

    def keep(self, length: int, targets: int | None = None) -> Tensor:
        """[length, length] bool: query i (first dimension) sees key j. The meaning of the mask.

        `targets` outside 0..length is taken as the nearest end, None as rows without targets.
        """
        checks.length("length", length)
        position = torch.arange(length)
        identity = position
        history = length
        if self.contextual > 0:
            identity = (position - self.contextual + 1).clamp(min=0)
            history -= self.contextual - 1
        if targets is not None:
            history -= min(max(targets, 0), length)
            identity = identity.clamp(max=history)
        query, key = identity[:, None], identity[None, :]
        distance = query - key
        keep = (position[:, None] == position[None, :]) | (distance > 0)
        if self.window > 0:
            near = distance <= self.window
            if self.min_full > 0:
                near = near | (query >= history - self.min_full)
            keep = keep & near
        if self.contextual > 0:
            keep = keep | ((query == 0) & (key < history))
        return keep

    def picture(self, length: int, targets: int | None = None) -> str:
        """The mask of one row as text: a line a query, 1 where it sees the key."""
        rows = self.keep(length, targets).to(torch.int64).tolist()
        return "\n".join("".join(map(str, row)) for row in rows)


@dataclass(frozen=True, eq=False)
class BucketedBias:
    """The relative bias of research HSTU, added to the scores and shared by all heads.

    With N = the model's longest row, `t` the timestamps and `t_next(i)` the next element's (for a
    row's last element its own)::

        S[query, key] += position_table[N - 1 + key - query] + time_table[b]
        b = clamp(int(f(max(|t_next(query) - t(key)|, 1)) / divisor), 0, buckets)

    Args:
        position_table: [2 * N - 1], in the dtype of q or float32 beside a 16-bit q; None for no
            position bias. Entries for key > query are used by the contextual prefix alone.
        time_table: [buckets + 1], dtype as `position_table`; None for no time bias.
        timestamps: [T] int64, needed with a time table.
        bucket: f: "log" (natural) or "sqrt".
        divisor: the width of a bucket in units of f.

    Buckets are computed in float32, as in the published code: a time difference within rounding of
    a bucket's edge may fall on either side of it. The bias is looked up inside the attention op:
    nothing of size N x N is made for the batch. The gradients of the two tables are the only
    results of this library that may be non-deterministic (on a GPU).
    """

    position_table: Tensor | None = None
    time_table: Tensor | None = None
    timestamps: Tensor | None = None
    bucket: Literal["log", "sqrt"] = "log"
    divisor: float = 0.301

    def __post_init__(self) -> None:
        if self.bucket not in ("log", "sqrt"):
            raise ValueError(f'bucket must be "log" or "sqrt", got {self.bucket!r}')
        checks.number_of_host("divisor", self.divisor)
        if not self.divisor > 0:
            raise ValueError(f"divisor must be positive, got {self.divisor}: 0.301 is usual")
        position, time = self.position_table, self.time_table
        if position is not None:
            checks.tensor("position_table", position)
            if position.ndim != 1 or position.shape[0] % 2 == 0:
                raise ValueError(
                    "position_table must have shape [2 * N - 1] for rows of at most N elements, "
                    f"got {checks.shape_of(position)}"
                )
        if time is not None:
            checks.tensor("time_table", time)
            if time.ndim != 1 or time.shape[0] == 0:
                raise ValueError(
                    f"time_table must have shape [buckets + 1], got {checks.shape_of(time)}"
                )
            if self.timestamps is None:
                raise ValueError("timestamps must be given with a time_table: [T] int64, got None")


# It holds nothing but data: `torch.load` may unpickle it, which otherwise takes no classes.
torch.serialization.add_safe_globals([HSTUMask])
