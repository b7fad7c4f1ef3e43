"""Histories of ids from Parquet to batches: how many rows a second?

    python -m examples.read_parquet

Writes a file of lists (mean length 10), then reads it in three ways: record batches as they lie in
Arrow's memory, shuffled batches of at most 8,192 ids as training takes them, and, for comparison,
Python lists through `collate`. Every id is read once, by a sum, in all of them.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

if __package__ in (None, ""):  # run as a file: make the repository importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow.parquet
import torch
from torch.utils.data import DataLoader

from examples import takes_no_options
from jagged import JaggedTensor
from jagged.data import ParquetBatches, collate, read_parquet
from jagged.interop.arrow import to_arrow

BUDGET = 8_192


def write(path: Path, rows: int) -> int:
    """A file of `rows` lists of 0 to 20 ids in several row groups; returns the sum of all ids."""
    lengths = torch.randint(0, 21, (rows,), dtype=torch.int32)
    ids = torch.randint(1_000_000, (int(lengths.sum()),))
    column = to_arrow(JaggedTensor.from_lengths(ids, lengths))
    pyarrow.parquet.write_table(
        pyarrow.table({"items": column}), path, row_group_size=200_000, compression="lz4"
    )
    return int(ids.sum())


def in_arrow(path: Path) -> Iterator[JaggedTensor]:
    """Zero-copy record batches."""
    yield from (batch["items"] for batch in read_parquet(path, ["items"]))


def for_training(path: Path) -> Iterator[JaggedTensor]:
    """Shuffled batches of a bounded number of ids, pinned where there is a GPU to copy them to."""
    data = ParquetBatches([path], ["items"], BUDGET)
    loader = DataLoader(data, batch_size=None, pin_memory=torch.cuda.is_available())
    yield from (batch["items"] for batch in loader)


def row_by_row(path: Path) -> Iterator[JaggedTensor]:
    """Python lists through `collate`, 800 rows a batch."""
    for batch in pyarrow.parquet.ParquetFile(path).iter_batches(800):
        yield collate(batch.column("items").to_pylist(), dtype=torch.int64)


def main(rows: int = 3_000_000) -> dict[str, float]:
    """Print and return the rows a second of every way."""
    torch.manual_seed(0)
    speeds = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "histories.parquet"
        total = write(path, rows)
        print(f"{rows:,} rows of 0 to 20 ids, {path.stat().st_size / 2**20:.0f} MiB of lz4")
        for _ in in_arrow(path):  # so that the first way does not pay for the start of Arrow
            pass
        for way in (in_arrow, for_training, row_by_row):
            part = 100 if way is row_by_row else None  # the slow one: 80,000 rows are enough
            started, seen, found = time.perf_counter(), 0, 0
            for x in islice(way(path), part):
                seen += len(x)
                found += int(x.values.sum())
            seconds = time.perf_counter() - started
            if part is None and (seen, found) != (rows, total):
                raise AssertionError(f"{way.__name__} lost rows: {seen} of {rows}")
            speeds[way.__name__] = seen / seconds
            print(f"  {way.__name__:<14}{seen / seconds / 1e6:>7.2f} M rows/s")
    return speeds


if __name__ == "__main__":
    takes_no_options(__doc__)
    torch.set_num_threads(1)  # as in a worker of a DataLoader
    main()
