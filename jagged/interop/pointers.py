"""Formats that are values and a pointer already: Merlin, flash-attention, PyG, scipy CSR.

All conversions share memory, unless it is said otherwise.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from jagged import checks
from jagged.layout import JaggedTensor


def from_merlin(batch: Mapping[str, Tensor], column: str) -> JaggedTensor:
    """A column of a Merlin dataloader's batch: `{column}__values` and `{column}__offsets`.

    Raises:
        KeyError: the batch has no such pair; the message lists the columns that it has.
    """
    names = (f"{column}__values", f"{column}__offsets")
    if not all(name in batch for name in names):
        ragged = sorted(name[: -len("__offsets")] for name in batch if name.endswith("__offsets"))
        raise KeyError(f"batch must have {names[0]} and {names[1]}; ragged columns are {ragged}")
    return JaggedTensor(batch[names[0]], batch[names[1]])


def to_merlin(x: JaggedTensor, column: str) -> dict[str, Tensor]:
    """`{column}__values` and `{column}__offsets`, as Merlin's dataloader names them."""
    return {f"{column}__values": x.values, f"{column}__offsets": x.offsets}


def from_cu_seqlens(values: Tensor, cu_seqlens: Tensor, max_seqlen: int | None) -> JaggedTensor:
    """Values [T, ...] and cumulative lengths [B + 1] as flash-attention's varlen functions take."""
    return JaggedTensor(values, cu_seqlens, max_seqlen)


def to_cu_seqlens(x: JaggedTensor) -> tuple[Tensor, Tensor, int]:
    """`(values, cu_seqlens, max_seqlen)` for flash-attention's varlen functions, int32.

    Raises:
        ValueError: `max_length` is not known, which is a host number there, or there are more
            elements than int32 counts.
    """
    if x.max_length is None:
        raise ValueError("max_length must be known for cu_seqlens: give it to the constructor")
    if x.values.shape[0] >= 2**31:
        raise ValueError(
            "x must have fewer than 2**31 elements for cu_seqlens, which are int32, got "
            f"{x.values.shape[0]}: take some of its rows with x.select"
        )
    return x.values, x.offsets.to(torch.int32), x.max_length


def from_ptr(values: Tensor, ptr: Tensor) -> JaggedTensor:
    """Values [T, ...] and PyG's `ptr` [B + 1] of a batch of graphs."""
    return JaggedTensor(values, ptr)


def from_batch(values: Tensor, batch: Tensor, num_rows: int) -> JaggedTensor:
    """Values [T, ...] and PyG's sorted `batch` [T]; trailing empty graphs need `num_rows`."""
    return JaggedTensor.from_row_ids(values, batch, num_rows)


def to_batch(x: JaggedTensor) -> tuple[Tensor, Tensor]:
    """`(values, batch)` as PyG's scatter functions take them; `batch` is new memory."""
    return x.values, x.row_ids()


def from_csr(matrix: Any) -> JaggedTensor:
    """The column indices of a scipy CSR matrix as values, its data as weights.

    Raises:
        TypeError: not a CSR matrix.
    """
    if getattr(matrix, "format", None) != "csr":
        raise TypeError(f"matrix must be a scipy CSR matrix, got {type(matrix).__name__}")
    indptr = torch.from_numpy(matrix.indptr)
    longest = int((indptr[1:] - indptr[:-1]).max()) if indptr.shape[0] > 1 else 0
    indices, data = torch.from_numpy(matrix.indices), torch.from_numpy(matrix.data)
    return JaggedTensor(indices, indptr, longest, data)


def to_csr(x: JaggedTensor, num_columns: int) -> Any:
    """A scipy CSR matrix [B, num_columns]: values are column indices, weights the data (or ones).

    The tensor must be on the CPU, its weights detached; the capacity tail is left out.

    Raises:
        TypeError: values are not integers.
        ValueError: a value is no column.
    """
    from scipy.sparse import csr_array

    checks.shape("x.values", x.values, (x.values.shape[0],), "[T]")
    checks.integers("x.values", x.values)
    total = int(x.offsets[-1])
    columns = x.values[:total]
    # scipy does not look, and reads past the end of what such a matrix is multiplied by.
    if total > 0 and not (columns.min() >= 0 and columns.max() < num_columns):
        raise ValueError(
            f"x.values must be in 0..{num_columns - 1} (column indices), got "
            f"{int(columns.min())} to {int(columns.max())}: raise num_columns"
        )
    data = torch.ones(total) if x.weights is None else x.weights[:total]
    parts = (data.numpy(), columns.numpy(), x.offsets.numpy())
    return csr_array(parts, shape=(len(x), num_columns))
