"""Parquet columns of lists to jagged tensors, and to batches with a bounded number of elements.

Nothing here runs row by row: a record batch is taken over as it lies in Arrow's memory, and the
rows of a window are put into the order of their batches in one gather.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from jagged import checks
from jagged.data.sampler import TokenBudgetSampler
from jagged.interop.arrow import from_arrow
from jagged.layout import JaggedTensor

INT32_MAX = 2**31 - 1


def read_parquet(
    path: str | Path,
    columns: Sequence[str],
    *,
    row_groups: Sequence[int] | None = None,
    batch_rows: int = 65_536,
) -> Iterator[dict[str, JaggedTensor]]:
    """Record batches of list columns, in the order of the file, without a copy after decoding.

    Args:
        path: a Parquet file.
        columns: names of columns of lists of numbers (or of lists of fixed-size lists).
        row_groups: only these, in this order; all where None.
        batch_rows: the most rows of a record batch.

    Returns:
        An iterator over dicts in the order of `columns`, whose jagged tensors share values and
        offsets with Arrow (read-only memory: copy before writing in place). Lists have int32
        offsets, large lists int64; `max_length` is known.

    Raises:
        ValueError: no Parquet file, a column that it does not have, no columns, `batch_rows` below
            1; while iterating, a null list or a null in a list (the message names the column).
        TypeError: while iterating, a column that holds no lists of numbers.
        ModuleNotFoundError: pyarrow is not installed (the extra `data`).
    """
    if batch_rows < 1:
        raise ValueError(f"batch_rows must be at least 1, got {batch_rows}")
    return _record_batches(_open(path, columns), path, columns, row_groups, batch_rows)


class ParquetBatches(IterableDataset[dict[str, JaggedTensor]]):
    """Batches of a bounded number of elements, from Parquet files: for a `DataLoader`.

    An epoch: the row groups of all files are permuted by a generator seeded with (seed, epoch) and
    dealt to the workers; each is read in windows of `window` rows, and a `TokenBudgetSampler` cuts
    every window into batches in random order. A window should hold many batches: its last ones are
    not full. The same arguments give the same batches; with workers, only their order differs::

        data = ParquetBatches(["part-0.parquet"], ["items"], budget=8_192)
        loader = DataLoader(data, batch_size=None, pin_memory=True)
        for epoch in range(epochs):
            data.set_epoch(epoch)       # with persistent workers it does not reach them
            for batch in loader:        # batch["items"]: a JaggedTensor
                ...

    Every process of a data-parallel run would read all of it: give each its own paths, and end an
    epoch where the first process has no batch left, since they will not have equally many.

    Args:
        paths: Parquet files.
        columns: names of list columns; the lengths of the first one are what `budget` counts.
        budget: the most elements that a batch may have, at least the longest row.
        max_length: longer rows are cut to it, in every column.
        keep: which end of a longer row stays: "last" or "first".
        bucket_bounds, max_rows: as in `TokenBudgetSampler`, in every window.
        window: rows that are shuffled together, at most a row group.
        seed: any int.

    Yields dicts in the order of `columns`. Offsets are int32 (int64 where a batch has 2^31 elements
    or more), `max_length` is the longest row of the batch, known on the host. Batches are views of
    their window's memory and overlap nowhere; a `DataLoader` with `pin_memory` copies each.

    Raises:
        ValueError: no path, an argument out of its range; while iterating what `read_parquet`
            raises, and a row longer than the budget.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        columns: Sequence[str],
        budget: int,
        *,
        max_length: int | None = None,
        keep: Literal["last", "first"] = "last",
        bucket_bounds: Sequence[int] = (),
        max_rows: int | None = None,
        window: int = 65_536,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if isinstance(paths, (str, Path)) or len(paths) == 0:
            raise ValueError(f"paths must be a list of at least one file, got {paths!r}")
        if window < 1:
            raise ValueError(f"window must be at least 1, got {window}")
        if keep not in ("last", "first"):
            raise ValueError(f'keep must be "last" or "first", got {keep!r}')
        checks.optional_length("max_length", max_length)
        _check_columns(columns)
        # The sampler's own checks of its arguments, before the first window.
        TokenBudgetSampler([], budget, bucket_bounds=bucket_bounds, max_rows=max_rows)
        self.paths = list(paths)
        self.columns = list(columns)
        self.budget = budget
        self.max_length = max_length
        self.keep = keep
        self.bucket_bounds = tuple(bucket_bounds)
        self.max_rows = max_rows
        self.window = window
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next iteration."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[dict[str, JaggedTensor]]:
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        files = [_open(path, self.columns) for path in self.paths]
        groups = [
            (i, group) for i, file in enumerate(files) for group in range(file.num_row_groups)
        ]
        order = torch.randperm(len(groups), generator=_generator(self.seed, self.epoch)).tolist()
        for i, group in (groups[index] for index in order[first::step]):
            windows = _record_batches(files[i], self.paths[i], self.columns, [group], self.window)
            for number, window in enumerate(windows):
                yield from self._batches(window, (i, group, number))

    def _batches(
        self, window: dict[str, JaggedTensor], place: tuple[int, int, int]
    ) -> Iterator[dict[str, JaggedTensor]]:
        """Cut one window; its place in the data takes part in the seed of its order."""
        counted = window[self.columns[0]].lengths()
        plan = TokenBudgetSampler(
            counted if self.max_length is None else counted.clamp(max=self.max_length),
            self.budget,
            bucket_bounds=self.bucket_bounds,
            max_rows=self.max_rows,
            seed=_generator(self.seed, *place).initial_seed(),
        ).batches(self.epoch)
        order = torch.cat(plan)
        sorted_rows = {
            name: _take(x, order, self.max_length, self.keep) for name, x in window.items()
        }
        start = 0
        for rows in plan:
            stop = start + len(rows)
            yield {name: _slice(x, start, stop) for name, x in sorted_rows.items()}
            start = stop


def _check_columns(columns: Sequence[str]) -> None:
    if isinstance(columns, str) or len(columns) == 0 or len(set(columns)) != len(columns):
        raise ValueError(f"columns must be a list of different names, got {columns!r}")


def _open(path: str | Path, columns: Sequence[str]) -> Any:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        if error.name not in ("pyarrow", "pyarrow.parquet"):
            raise
        raise ModuleNotFoundError(
            "Parquet files need the package pyarrow, which is not installed: "
            "pip install 'jagged-layers[data]'",
            name=error.name,
        ) from error
    _check_columns(columns)
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path} is no Parquet file: {error}") from error
    names = file.schema_arrow.names
    missing = [name for name in columns if name not in names]
    if missing:  # pyarrow would leave them out without a word
        raise ValueError(f"columns must be in {path}, got {missing} where it has {names}")
    return file


def _record_batches(
    file: Any,
    path: str | Path,
    columns: Sequence[str],
    row_groups: Sequence[int] | None,
    batch_rows: int,
) -> Iterator[dict[str, JaggedTensor]]:
    chosen = None if row_groups is None else list(row_groups)
    for batch in file.iter_batches(batch_rows, row_groups=chosen, columns=list(columns)):
        yield {name: _column(batch, name, path) for name in columns}


def _column(batch: Any, name: str, path: str | Path) -> JaggedTensor:
    try:
        return from_arrow(batch.column(name))
    except (TypeError, ValueError) as error:
        raise type(error)(f"column {name!r} of {path}: {error}") from error


def _generator(*parts: int) -> torch.Generator:
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))


def _take(x: JaggedTensor, rows: Tensor, max_length: int | None, keep: str) -> JaggedTensor:
    """These rows, cut to `max_length`: on the host faster than `JaggedTensor.select`."""
    starts, lengths = x.offsets[:-1].to(torch.int64), x.lengths().to(torch.int64)
    if max_length is not None:
        kept = lengths.clamp(max=max_length)
        if keep == "last":
            starts = starts + (lengths - kept)
        lengths = kept
    starts, lengths = starts[rows], lengths[rows]
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    total = int(offsets[-1])
    shift = torch.repeat_interleave(starts - offsets[:-1], lengths, output_size=total)
    source = shift.add_(torch.arange(total))
    return JaggedTensor(x.values.index_select(0, source), offsets)


def _slice(x: JaggedTensor, start: int, stop: int) -> JaggedTensor:
    """Rows `start` to `stop`: values are a view."""
    first, last = int(x.offsets[start]), int(x.offsets[stop])
    offsets = x.offsets[start : stop + 1] - first
    narrow = torch.int32 if last - first <= INT32_MAX else torch.int64
    longest = int((offsets[1:] - offsets[:-1]).max())
    return JaggedTensor(x.values[first:last], offsets.to(narrow), longest)
