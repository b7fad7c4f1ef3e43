"""The relative bias of HSTU attention, as a layer that owns its tables."""

from typing import Literal

import torch
from torch import Tensor, nn

from jagged.attention import BucketedBias


class RelativeBias(nn.Module):
    """Learned bias of an attention score, by the distance of query and key in position and in time.

    The two tables that `jagged.BucketedBias` describes; the attention op looks them up, nothing of
    size N x N is made. Zhai et al., arXiv 2402.17152, section 3 (rab^{p,t}), with the buckets of
    the published research code: 128 of them, `log(dt) / 0.301`.

    Args:
        max_length: N, the longest row the model takes; None is enough without `position`.
        position: learn `position_table` [2 N - 1].
        num_buckets: the largest time bucket; `time_table` is [num_buckets + 1]. 0 for no time bias.
        bucket: "log" (natural) or "sqrt".
        divisor: the width of a bucket.

    Example:
        >>> bias = jagged.modules.RelativeBias(max_length=50)(timestamps=torch.arange(8))
        >>> q = k = v = torch.randn(8, 2, 4)
        >>> offsets = torch.tensor([0, 3, 8])
        >>> out = jagged.ops.hstu_attention(
        ...     q, k, v, offsets, max_length=50, scale=1 / 50, bias=bias)
    """

    position_table: nn.Parameter | None
    time_table: nn.Parameter | None

    def __init__(
        self,
        max_length: int | None,
        position: bool = True,
        num_buckets: int = 128,
        bucket: Literal["log", "sqrt"] = "log",
        divisor: float = 0.301,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if position and (max_length is None or max_length < 1):
            raise ValueError(
                f"max_length must be at least 1 for a position table, got {max_length}: it is the "
                "longest row the model takes"
            )
        if num_buckets < 0:
            raise ValueError(f"num_buckets must not be negative, got {num_buckets}")
        BucketedBias(bucket=bucket, divisor=divisor)  # refuses a wrong bucket or divisor here
        self.max_length = max_length
        self.num_buckets = num_buckets
        self.bucket: Literal["log", "sqrt"] = bucket
        self.divisor = divisor
        self.position_table = None
        self.time_table = None
        if position and max_length is not None:
            self.position_table = nn.Parameter(
                torch.empty(2 * max_length - 1, device=device, dtype=dtype)
            )
        if num_buckets > 0:
            self.time_table = nn.Parameter(torch.empty(num_buckets + 1, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal with standard deviation 0.02."""
        for table in (self.position_table, self.time_table):
            if table is not None:
                nn.init.normal_(table, std=0.02)

    def forward(self, timestamps: Tensor | None = None) -> BucketedBias:
        """The bias for a batch with `timestamps` [T] int64, which the time table needs."""
        if self.time_table is not None and timestamps is None:
            raise ValueError(
                "timestamps must be given with a time_table: [T] int64, got None; without time, "
                "build with time_buckets=0 in HSTUConfig or num_buckets=0 in RelativeBias"
            )
        if self.time_table is None and timestamps is not None:
            raise ValueError(
                "timestamps must not be given to a RelativeBias without a time table: build it "
                "with num_buckets > 0"
            )
        return BucketedBias(
            self.position_table, self.time_table, timestamps, self.bucket, self.divisor
        )

    def extra_repr(self) -> str:
        return (
            f"{self.max_length}, position={self.position_table is not None}, "
            f"num_buckets={self.num_buckets}, bucket={self.bucket!r}, divisor={self.divisor:g}"
        )
