import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

from jagged import JaggedTensor
from jagged.data import ParquetBatches, parquet, read_parquet

ROWS = [[1, 2], [], [3, 4, 5, 6], [7], [], [8, 9, 10]]


def write(path: Path, rows_in_group: int = 1_000_000, **columns: pa.Array) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=rows_in_group)
    return path


def numbered(path: Path, rows: int, rows_in_group: int) -> tuple[Path, list[list[int]]]:
    """Rows of 0 to 6 ids, no id twice; `twin` holds each id twice."""
    lengths = [(7 * i) % 5 + (i % 3) for i in range(rows)]
    ids = iter(range(sum(lengths)))
    lists = [[next(ids) for _ in range(n)] for n in lengths]
    twin = [[i for i in row for _ in range(2)] for row in lists]
    path = write(path, rows_in_group, items=pa.array(lists), twin=pa.array(twin))
    return path, lists


def rows_of(batches: Any, name: str = "items") -> list[list[int]]:
    return [row.tolist() for batch in batches for row in batch[name].validate().rows()]


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64", "uint8"])
@pytest.mark.parametrize(
    ("kind", "offsets_dtype"), [(pa.list_, torch.int32), (pa.large_list, torch.int64)]
)
def test_values_and_dtypes(
    tmp_path: Path, dtype: str, kind: Any, offsets_dtype: torch.dtype
) -> None:
    column = pa.array(ROWS, kind(pa.type_for_alias(dtype)))
    (batch,) = read_parquet(write(tmp_path / "a.parquet", x=column), ["x"])
    x = batch["x"].validate()
    assert [row.tolist() for row in x.rows()] == ROWS
    assert x.values.dtype == getattr(torch, dtype)
    assert x.offsets.dtype == offsets_dtype
    assert x.max_length == 4


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    vectors = pa.array([[[1.0, 2.0]]] * len(ROWS), pa.list_(pa.list_(pa.float32(), 2)))
    path = write(tmp_path / "a.parquet", a=pa.array(ROWS), b=pa.array(ROWS), v=vectors)
    (batch,) = read_parquet(path, ["v", "a"])
    assert list(batch) == ["v", "a"]
    assert batch["v"].values.shape == (6, 2)


def test_memory_is_shared_with_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays: list[Any] = []
    convert = parquet.from_arrow

    def recorded(array: Any) -> JaggedTensor:
        arrays.append(array)
        return convert(array)

    monkeypatch.setattr(parquet, "from_arrow", recorded)
    path = write(tmp_path / "a.parquet", 3, x=pa.array(ROWS))
    for batch in read_parquet(path, ["x"], batch_rows=3):
        x, array = batch["x"], arrays[-1]
        assert (
            x.values.data_ptr() == array.values.buffers()[1].address + 8 * array.offsets[0].as_py()
        )
        if array.offset == 0:
            assert x.offsets.data_ptr() == array.buffers()[1].address
    assert len(arrays) == 2


def test_memory_outlives_the_reader(tmp_path: Path) -> None:
    path, lists = numbered(tmp_path / "a.parquet", 200, 50)
    batches = list(read_parquet(path, ["items"], batch_rows=30))
    assert max(len(batch["items"]) for batch in batches) <= 30
    assert rows_of(batches) == lists


def test_row_groups(tmp_path: Path) -> None:
    path, lists = numbered(tmp_path / "a.parquet", 100, 40)
    assert rows_of(read_parquet(path, ["items"])) == lists
    assert rows_of(read_parquet(path, ["items"], row_groups=[2, 0])) == lists[80:] + lists[:40]


def test_a_file_without_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", items=pa.array([], pa.list_(pa.int64())))
    assert rows_of(read_parquet(path, ["items"])) == []
    assert rows_of(ParquetBatches([path], ["items"], 8)) == []


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        (pa.array([[1], None]), ValueError, r"column 'x' of .*: array must hold no nulls, got 1"),
        (pa.array([[1, None]]), ValueError, r"column 'x' of .*: the values of array .* no nulls"),
        (pa.array([1, 2]), TypeError, r"column 'x' of .*: array must be an Arrow array of lists"),
        (pa.array([["a"]]), TypeError, r"column 'x' of .*: array must hold lists of numbers"),
    ],
)
def test_columns_that_are_refused(
    tmp_path: Path, column: pa.Array, error: type[Exception], message: str
) -> None:
    path = write(tmp_path / "a.parquet", x=column)
    with pytest.raises(error, match=message):
        list(read_parquet(path, ["x"]))
    with pytest.raises(error, match=message):
        list(ParquetBatches([path], ["x"], 8))


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    path, _ = numbered(tmp_path / "a.parquet", 4, 4)
    broken = tmp_path / "broken.parquet"
    broken.write_text("PAR1, it says, but it is not")
    for read in (
        lambda: read_parquet(broken, ["items"]),
        lambda: list(ParquetBatches([path, broken], ["items"], 9)),
    ):
        with pytest.raises(ValueError, match=r"broken\.parquet is no Parquet file: "):
            read()


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'jagged-layers\[data\]'"):
        read_parquet("items.parquet", ["items"])


def test_arguments_that_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", x=pa.array(ROWS))
    with pytest.raises(ValueError, match=r"got \['y'\] where it has \['x'\]"):
        read_parquet(path, ["y"])
    with pytest.raises(ValueError, match="columns must be a list of different names, got 'x'"):
        read_parquet(path, "x")
    with pytest.raises(ValueError, match="batch_rows must be at least 1, got 0"):
        read_parquet(path, ["x"], batch_rows=0)
    with pytest.raises(ValueError, match="paths must be a list of at least one file"):
        ParquetBatches(path, ["x"], 8)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="window must be at least 1, got 0"):
        ParquetBatches([path], ["x"], 8, window=0)
    with pytest.raises(ValueError, match='keep must be "last" or "first"'):
        ParquetBatches([path], ["x"], 8, keep="middle")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="budget must be at least 1, got 0"):
        ParquetBatches([path], ["x"], 0)
    with pytest.raises(ValueError, match="bucket_bounds must increase"):
        ParquetBatches([path], ["x"], 8, bucket_bounds=[2, 2])
    with pytest.raises(
        ValueError, match="budget must be at least the longest row, got 3 but row 2"
    ):
        list(ParquetBatches([path], ["x"], 3))


def test_an_epoch_holds_every_row_once_within_the_budget(tmp_path: Path) -> None:
    path, lists = numbered(tmp_path / "a.parquet", 200, 60)
    data = ParquetBatches([path, path], ["items", "twin"], 16, window=25, max_rows=5)
    batches = list(data)
    assert sorted(rows_of(batches)) == sorted(lists * 2)
    for batch in batches:
        items, twin = batch["items"], batch["twin"]
        assert items.values.shape[0] <= 16
        assert len(items) <= 5
        assert items.offsets.dtype == twin.offsets.dtype == torch.int32
        assert items.max_length == int(items.lengths().max())
        assert items.values.is_contiguous()
        assert twin.values.tolist() == items.values.repeat_interleave(2).tolist()


def test_large_lists_get_narrow_offsets(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", x=pa.array(ROWS, pa.large_list(pa.int64())))
    assert {batch["x"].offsets.dtype for batch in ParquetBatches([path], ["x"], 8)} == {torch.int32}


@pytest.mark.parametrize("keep", ["last", "first"])
def test_long_rows_are_cut_before_they_are_counted(tmp_path: Path, keep: Any) -> None:
    path, lists = numbered(tmp_path / "a.parquet", 50, 50)
    data = ParquetBatches([path], ["items"], 4, max_length=2, keep=keep)
    expected = [row[-2:] if keep == "last" else row[:2] for row in lists]
    assert sorted(rows_of(data)) == sorted(expected)
    assert sorted(rows_of(ParquetBatches([path], ["items"], 4, max_length=0))) == [[]] * 50


def test_buckets_do_not_mix(tmp_path: Path) -> None:
    path, _ = numbered(tmp_path / "a.parquet", 200, 200)
    for batch in ParquetBatches([path], ["items"], 20, bucket_bounds=[2]):
        lengths = batch["items"].lengths()
        assert bool((lengths <= 2).all()) or bool((lengths > 2).all())


def test_the_order_depends_on_seed_and_epoch_alone(tmp_path: Path) -> None:
    path, lists = numbered(tmp_path / "a.parquet", 120, 30)
    data = ParquetBatches([path], ["items"], 16)
    first = rows_of(data)
    assert rows_of(data) == first == rows_of(ParquetBatches([path], ["items"], 16))
    assert first != rows_of(ParquetBatches([path], ["items"], 16, seed=1))
    data.set_epoch(1)
    second = rows_of(data)
    assert second != first
    assert sorted(second) == sorted(first) == sorted(lists)


def test_windows_of_equal_lengths_are_shuffled_apart(tmp_path: Path) -> None:
    column = pa.array([[i] for i in range(64)])
    path = write(tmp_path / "a.parquet", 32, x=column)
    order = [row[0] % 32 for row in rows_of(ParquetBatches([path], ["x"], 4), "x")]
    assert order[:32] != order[32:]


def test_a_batch_keeps_to_its_own_memory(tmp_path: Path) -> None:
    path, lists = numbered(tmp_path / "a.parquet", 40, 40)
    seen = []
    for batch in ParquetBatches([path], ["items"], 8):
        seen += rows_of([batch])
        batch["items"].values.fill_(-1)
    assert sorted(seen) == sorted(lists)


@pytest.mark.slow
def test_workers_share_the_row_groups(tmp_path: Path) -> None:
    path, lists = numbered(tmp_path / "a.parquet", 100, 20)
    data = ParquetBatches([path], ["items"], 16)
    loader = DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context="spawn")
    batches = [rows_of([batch]) for batch in loader]
    assert sorted(batches) == sorted(rows_of([batch]) for batch in data)
    assert sorted(row for batch in batches for row in batch) == sorted(lists)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="pinned memory needs a GPU")
def test_batches_are_pinned(tmp_path: Path) -> None:
    path, lists = numbered(tmp_path / "a.parquet", 40, 40)
    loader = DataLoader(ParquetBatches([path], ["items"], 16), batch_size=None, pin_memory=True)
    batches = list(loader)
    assert all(batch["items"].values.is_pinned() for batch in batches)
    assert all(batch["items"].offsets.is_pinned() for batch in batches)
    assert sorted(rows_of(batches)) == sorted(lists)
