import numpy as np
import pyarrow as pa
import pytest
import torch

from jagged import JaggedTensor
from jagged.interop.arrow import from_arrow, to_arrow

ROWS = [[1, 2], [], [3, 4, 5, 6]]


@pytest.mark.parametrize(
    ("kind", "offsets_dtype"), [(pa.list_, torch.int32), (pa.large_list, torch.int64)]
)
def test_from_arrow_shares_memory(kind: type, offsets_dtype: torch.dtype) -> None:
    array = pa.array(ROWS, kind(pa.int64()))
    x = from_arrow(array)
    assert [row.tolist() for row in x.rows()] == ROWS
    assert x.values.dtype == torch.int64
    assert x.offsets.dtype == offsets_dtype
    assert x.max_length == 4
    assert x.values.data_ptr() == array.values.buffers()[1].address
    assert x.offsets.data_ptr() == array.offsets.buffers()[1].address


def test_a_slice_is_rebased() -> None:
    array = pa.array([[9, 9, 9], *ROWS, [8]]).slice(1, 3)
    x = from_arrow(array)
    assert [row.tolist() for row in x.rows()] == ROWS
    assert x.offsets.tolist() == [0, 2, 2, 6]
    assert x.values.data_ptr() == array.values.buffers()[1].address + 3 * 8


def test_lists_of_fixed_size_lists_are_vectors() -> None:
    array = pa.array(
        [[[1.0, 2.0]], [], [[3.0, 4.0], [5.0, 6.0]]], pa.list_(pa.list_(pa.float32(), 2))
    )
    x = from_arrow(array.slice(1))
    assert x.values.tolist() == [[3, 4], [5, 6]]
    assert len(x) == 2


def test_chunks_empty_arrays_and_bools() -> None:
    chunked = pa.chunked_array([pa.array(ROWS[:1]), pa.array(ROWS[1:], pa.list_(pa.int64()))])
    assert [row.tolist() for row in from_arrow(chunked).rows()] == ROWS
    assert len(from_arrow(pa.array([], pa.list_(pa.int64())))) == 0
    assert from_arrow(pa.array([[True], [False]])).values.tolist() == [True, False]


@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        (pa.array([[1], None]), ValueError, "array must hold no nulls, got 1"),
        (pa.array([[1, None]]), ValueError, "the values of array must hold no nulls"),
        (pa.array([1, 2]), TypeError, "array of lists, got int64"),
        (pa.array([["a"]]), TypeError, "lists of numbers"),
        ([1], TypeError, "array of lists, got list"),
    ],
)
def test_what_is_refused(array: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        from_arrow(array)


@pytest.mark.parametrize(
    ("kind", "rows", "want"),
    [
        (pa.list_(pa.timestamp("us")), [[3, 5], []], [[3, 5], []]),
        (pa.list_(pa.null()), [[], []], [[], []]),
        (pa.list_(pa.int64(), 2), [[1, 2]], [[1, 2]]),
    ],
    ids=str,
)
def test_the_message_names_a_cast_that_helps(
    kind: pa.DataType, rows: list[list[int]], want: list[list[int]]
) -> None:
    array = pa.array(rows, type=kind)
    with pytest.raises(TypeError, match=r"with array\.cast\(pyarrow\.list_\(pyarrow\.int64"):
        from_arrow(array)
    got = from_arrow(array.cast(pa.list_(pa.int64())))
    assert [row.tolist() for row in got.rows()] == want


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_there_and_back(dtype: torch.dtype) -> None:
    x = JaggedTensor(torch.randn(7, 2), torch.tensor([0, 2, 2, 6], dtype=dtype))
    array = to_arrow(x)
    assert array.type.value_type.list_size == 2
    assert np.allclose(array.flatten().flatten().to_numpy(), x.values[:6].flatten().numpy())
    assert array.values.flatten().buffers()[1].address == x.values.data_ptr()
    back = from_arrow(array)
    assert back.offsets.dtype == dtype
    assert torch.equal(back.values, x.values[:6])


def test_what_arrow_cannot_hold() -> None:
    x = JaggedTensor(torch.zeros(2, requires_grad=True), torch.tensor([0, 2]))
    with pytest.raises(ValueError, match="detached CPU tensor for Arrow, got one with gradients"):
        to_arrow(x)
    with pytest.raises(TypeError, match="Arrow has no bfloat16"):
        to_arrow(x.with_values(torch.zeros(2, dtype=torch.bfloat16)))
    with pytest.raises(ValueError, match=r"values \[T\] or \[T, D\]"):
        to_arrow(x.with_values(torch.zeros(2, 1, 1)))
