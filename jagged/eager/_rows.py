"""Where each element of a jagged tensor lives, computed without reading the offsets on the host."""

from typing import NamedTuple

import torch
from torch import Tensor


class Elements(NamedTuple):
    """For each of T elements: its row (B for the capacity tail) and its place in the row."""

    row: Tensor  # [T] int64, 0..B; B marks an element that belongs to no row
    position: Tensor  # [T] int64, 0 for the tail
    valid: Tensor  # [T] bool, False for the tail


def elements(offsets: Tensor, total: int) -> Elements:
    """Row and position of each of `total` elements."""
    index = torch.arange(total, device=offsets.device)
    bounds = offsets.to(torch.int64)
    row = torch.searchsorted(bounds[1:].contiguous(), index, right=True)
    valid = row < offsets.shape[0] - 1
    start = bounds[row.clamp(max=max(offsets.shape[0] - 2, 0))]
    return Elements(row, torch.where(valid, index - start, 0), valid)


def lengths_on_host(offsets: Tensor) -> list[int]:
    """Row lengths as Python ints: the one place where `eager/` reads offsets.

    Free on CPU tensors. On CUDA tensors it waits for the device.
    """
    lengths: list[int] = (offsets[1:] - offsets[:-1]).tolist()
    return lengths


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """What sums are kept in: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def over_trailing(flag: Tensor, like: Tensor) -> Tensor:
    """A [T] tensor shaped so that it broadcasts over the trailing dimensions of `like`."""
    return flag.reshape(flag.shape + (1,) * (like.ndim - 1))


def sum_rows(values: Tensor, row: Tensor, num_rows: int) -> Tensor:
    """Sum of `values` [T, ...] by row [B, ...] in the accumulation dtype; the tail is dropped."""
    out = torch.zeros(
        (num_rows + 1, *values.shape[1:]),
        dtype=accumulation_dtype(values.dtype),
        device=values.device,
    )
    return out.index_add_(0, row, values.to(out.dtype))[:num_rows]


def spread_rows(per_row: Tensor, where: Elements) -> Tensor:
    """`per_row` [B, ...] read at each element's row [T, ...]; 0 for the tail."""
    padded = torch.cat([per_row, per_row.new_zeros((1, *per_row.shape[1:]))])
    return padded[where.row]
