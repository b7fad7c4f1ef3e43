"""Examples to a batch: rows of different lengths into one `JaggedTensor`, on the host.

Symbols: B rows, n_i the length of row i, T elements in all rows.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, cast

import torch
from torch import Tensor

from jagged import checks
from jagged.layout import JaggedTensor

Number: TypeAlias = bool | int | float
Row: TypeAlias = Tensor | Sequence[Number]


def collate(
    rows: Sequence[Row],
    *,
    max_length: int | None = None,
    keep: Literal["last", "first"] = "last",
    capacity: int | None = None,
    dtype: torch.dtype | None = None,
    offsets_dtype: torch.dtype = torch.int64,
) -> JaggedTensor:
    """Put rows one after the other: a `collate_fn` for a `torch.utils.data.DataLoader`.

    Args:
        rows: B tensors or numpy arrays [n_i, ...] on the CPU, of one dtype and trailing shape,
            or B sequences of numbers; B >= 1. Empty rows are ordinary: they take the dtype of the
            others, and [] or an array of shape [0] their trailing shape.
        max_length: longer rows are cut to it, and it becomes `max_length` of the result; without
            it rows stay whole and the result knows its longest row.
        keep: which end of a longer row stays: "last" (the newest of an event stream) or "first".
        capacity: T_cap of the result, whose tail is 0; without it there is no tail.
        dtype: of the values, to which rows are converted; needed where all rows are empty sequences
            of numbers.
        offsets_dtype: int32 or int64.

    Returns:
        A `JaggedTensor` with values [T or capacity, ...]. Numbers become int64 if all of them are
        whole, bool if all are bool, else the default floating dtype. Nothing of a row is shared.

    Raises:
        ValueError: no row, rows of different trailing shapes, or more elements than `capacity`.
        TypeError: rows of different dtypes, or what is no row or no number.

    Example:
        >>> jagged.data.collate([[1, 2, 3], [], [4]])
        JaggedTensor(3 rows, 4 elements, int64, cpu, max_length=3
          0: [1, 2, 3]
          1: []
          2: [4])
    """
    if len(rows) == 0:
        raise ValueError(
            "rows must hold at least one row, which gives the dtype and trailing shape, got none: "
            "an empty part of a BalancedSampler needs a batch of its own"
        )
    checks.optional_length("max_length", max_length)
    checks.optional_length("capacity", capacity)
    if keep not in ("last", "first"):
        raise ValueError(f'keep must be "last" or "first", got {keep!r}')
    tensors = _as_tensors(rows, dtype)
    if max_length is not None:
        cut = max_length
        tensors = [
            row[max(row.shape[0] - cut, 0) :] if keep == "last" else row[:cut] for row in tensors
        ]
    total = sum(row.shape[0] for row in tensors)
    if capacity is not None and total > capacity:
        raise ValueError(
            f"capacity must hold all elements of the batch, got {capacity} for {total} elements in "
            f"{len(rows)} rows: raise it, or lower the sampler's budget"
        )
    batch = JaggedTensor.from_rows(tensors, offsets_dtype=offsets_dtype)
    values = batch.values
    if capacity is not None:
        values = torch.cat([values, values.new_zeros((capacity - total, *values.shape[1:]))])
    longest = batch.max_length if max_length is None else max_length
    return JaggedTensor(values, batch.offsets, longest)


def collate_features(
    examples: Sequence[Mapping[str, Row | Number]],
    *,
    max_length: int | None = None,
    keep: Literal["last", "first"] = "last",
    dtypes: Mapping[str, torch.dtype] | None = None,
) -> dict[str, JaggedTensor | Tensor]:
    """Collate examples of several named features: rows become jagged tensors, numbers a vector.

    Args:
        examples: B mappings with the same names; the value of a name is a row in all of them (a
            tensor [n_i, ...] or a sequence of numbers) or a number in all of them (also a
            numpy scalar, or a tensor without dimensions).
        max_length, keep: cut every row feature, as in `collate`.
        dtypes: of the features that it names. Lists that are empty in a whole batch need theirs,
            and lists of floats that may all be whole have one dtype in every batch with it alone.

    Returns:
        For each name a `JaggedTensor` of B rows, or a tensor [B].

    Raises:
        ValueError: no example, other names in some example, rows and numbers under one name, a
            dtype for no feature; what `collate` raises, with the name of the feature.
        TypeError: an example that is no mapping; what `collate` raises.
    """
    if len(examples) == 0:
        raise ValueError("examples must hold at least one example, got none")
    names = list(examples[0])
    for index, example in enumerate(examples):
        if not isinstance(example, Mapping):
            raise TypeError(
                f"examples[{index}] must be a mapping of names, got {type(example).__name__}"
            )
        if set(example) != set(names):
            raise ValueError(
                f"examples must all have the features {sorted(names)}, "
                f"got {sorted(example)} in example {index}"
            )
    dtypes = {} if dtypes is None else dtypes
    if unknown := sorted(set(dtypes) - set(names)):
        raise ValueError(f"dtypes must be of the features {sorted(names)}, got {unknown}")
    batch: dict[str, JaggedTensor | Tensor] = {}
    for name in names:
        numbers: list[Number | Tensor] = []
        rows: list[Row] = []
        for example in examples:
            value = example[name]
            if isinstance(value, (bool, int, float)) or getattr(value, "ndim", 1) == 0:
                numbers.append(cast("Number | Tensor", value))
            else:
                rows.append(value)
        if numbers and rows:
            raise ValueError(
                f"feature {name!r} must be a row in every example or a number in every example, "
                f"got {len(rows)} rows and {len(numbers)} numbers"
            )
        dtype = dtypes.get(name)
        if numbers:
            batch[name] = torch.stack([torch.as_tensor(number, dtype=dtype) for number in numbers])
            continue
        try:
            batch[name] = collate(rows, max_length=max_length, keep=keep, dtype=dtype)
        except (TypeError, ValueError, RuntimeError) as error:
            raise type(error)(f"feature {name!r}: {error}") from error
    return batch


def _as_tensors(rows: Sequence[Row], dtype: torch.dtype | None) -> list[Tensor]:
    """The rows as tensors of one dtype; numbers are typed together, so that [] takes part."""
    for index, row in enumerate(rows):
        is_text = isinstance(row, (str, bytes, Mapping))
        if is_text or getattr(row, "ndim", 1) == 0 or not hasattr(row, "__len__"):
            raise TypeError(
                f"rows[{index}] must be a tensor [n, ...] or a sequence of numbers, got {row!r}: "
                "collate_features takes examples of several named features"
            )
    # Numpy arrays have a dtype, as tensors do. They may be read-only: this copies them.
    rows = [torch.tensor(row) if hasattr(row, "__array_interface__") else row for row in rows]
    if any(isinstance(row, Tensor) for row in rows):
        return _of_one_dtype(rows, dtype)
    lengths = [len(row) for row in rows]
    if sum(lengths) == 0 and dtype is None:
        raise ValueError("dtype must be given where all rows are empty sequences of numbers")
    try:
        flat = torch.tensor([number for row in rows for number in row], dtype=dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise type(error)(f"rows must hold numbers of one shape that fit: {error}") from error
    return list(torch.split(flat, lengths))


def _of_one_dtype(rows: Sequence[Row], dtype: torch.dtype | None) -> list[Tensor]:
    """Tensors, and empty ones in place of empty sequences, in `dtype` or that of their elements.

    What is empty is often of a type that nobody chose: `numpy.array([])` is float64.
    """
    tensors = [row for row in rows if isinstance(row, Tensor)]
    others = sum(not isinstance(row, Tensor) and len(row) > 0 for row in rows)
    if others > 0:
        raise TypeError(
            f"rows must all be tensors or all be sequences of numbers, got {len(tensors)} tensors "
            f"among {len(rows)} rows"
        )
    first = next((index for index, row in enumerate(rows) if len(row) > 0), None)
    example = tensors[0] if first is None else cast("Tensor", rows[first])
    typed: list[Tensor] = []
    for index, row in enumerate(rows):
        if not isinstance(row, Tensor) or row.shape == (0,):
            row = example[:0]
        elif row.shape[0] > 0 and dtype is None and row.dtype != example.dtype:
            raise TypeError(
                f"rows[{index}] must have the dtype of rows[{first}] ({example.dtype}), got "
                f"{row.dtype}: convert it, or give dtype to convert all"
            )
        typed.append(row.to(example.dtype if dtype is None else dtype))
    return typed
