from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader

from jagged import JaggedTensor
from jagged.data import TokenBudgetSampler, collate, collate_features

ROWS = st.lists(st.lists(st.integers(-9, 9), max_size=6), min_size=1, max_size=8)


@given(rows=ROWS)
def test_the_rows_come_back(rows: list[list[int]]) -> None:
    batch = collate([torch.tensor(row, dtype=torch.int64) for row in rows]).validate()
    assert [row.tolist() for row in batch.rows()] == rows
    assert batch.max_length == max(len(row) for row in rows)


@given(rows=ROWS, length=st.integers(0, 7), keep=st.sampled_from(["last", "first"]))
def test_long_rows_lose_the_other_end(rows: list[list[int]], length: int, keep: str) -> None:
    batch = collate(rows, max_length=length, keep=keep, dtype=torch.int64).validate()  # type: ignore[arg-type]
    expected = [
        row[max(len(row) - length, 0) :] if keep == "last" else row[:length] for row in rows
    ]
    assert [row.tolist() for row in batch.rows()] == expected
    assert batch.max_length == length


def test_numbers_are_typed_together() -> None:
    assert collate([[1, 2], [], [3]]).values.dtype == torch.int64
    assert collate([[1, 2], [], [3.5]]).values.tolist() == [1.0, 2.0, 3.5]
    assert collate([[True], [False, True]]).values.dtype == torch.bool
    assert collate([[], []], dtype=torch.float32).values.shape == (0,)
    assert collate([[1]], dtype=torch.bfloat16).values.dtype == torch.bfloat16


def test_features_of_an_element_stay_together() -> None:
    rows = [torch.arange(6.0).reshape(3, 2), torch.zeros(0, 2), torch.ones(1, 2)]
    batch = collate(rows, offsets_dtype=torch.int32)
    assert torch.equal(batch.values, torch.cat(rows))
    assert batch.offsets.dtype == torch.int32
    assert batch.offsets.tolist() == [0, 3, 3, 4]


def test_capacity_makes_a_tail_of_zeros() -> None:
    batch = collate([[1, 2], [], [3]], capacity=5).validate()
    assert batch.values.tolist() == [1, 2, 3, 0, 0]
    assert batch.offsets.tolist() == [0, 2, 2, 3]
    assert collate([[1, 2], [3]], capacity=3).values.tolist() == [1, 2, 3]


def test_the_batch_shares_no_memory_with_a_row() -> None:
    row = torch.tensor([1, 2, 3])
    batch = collate([row])
    row[0] = 9
    assert batch.values.tolist() == [1, 2, 3]


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"rows must hold at least one row, .* got none"):
        collate([])
    for rows in ([1, 2], [None], [torch.tensor(1)], [[1], 2], ["ab", "c"], [{"a": [1]}]):
        with pytest.raises(TypeError, match=r"rows\[[01]\] must be a tensor \[n, ...\] or a seq"):
            collate(rows)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match="capacity must hold all elements of the batch, got 2 for 3"
    ):
        collate([[1, 2], [3]], capacity=2)
    with pytest.raises(ValueError, match="dtype must be given where all rows are empty"):
        collate([[], []])
    with pytest.raises(TypeError, match="got 1 tensors among 2 rows"):
        collate([[1], torch.tensor([2])])
    with pytest.raises(TypeError, match=r"rows\[2\] must have the dtype of rows\[1\] .*give dtype"):
        collate([[], torch.tensor([1]), torch.tensor([2.0])])
    with pytest.raises(ValueError, match=r"rows\[1\] must have the trailing shape"):
        collate([torch.ones(1, 3), torch.ones(0, 4)])
    with pytest.raises(ValueError, match="max_length must not be negative, got -1"):
        collate([[1]], max_length=-1)
    with pytest.raises(ValueError, match='keep must be "last" or "first", got \'middle\''):
        collate([[1]], keep="middle")  # type: ignore[arg-type]


def test_rows_that_are_no_numbers() -> None:
    for rows in ([[1], ["a"]], [[2**63]], [[[1, 2]], [[3]]], [(torch.arange(3), 1)]):
        with pytest.raises((TypeError, ValueError), match=r"rows must hold numbers .*: \w"):
            collate(rows)  # type: ignore[arg-type]


def test_rows_of_numpy() -> None:
    rows = [numpy.ones((2, 3), numpy.float16), numpy.zeros((0, 3), numpy.float16)]
    rows[0].flags.writeable = False
    batch = collate(rows)  # type: ignore[arg-type]
    assert batch.values.dtype == torch.float16
    assert batch.values.tolist() == [[1.0] * 3] * 2
    assert batch.lengths().tolist() == [2, 0]
    empty = collate([numpy.zeros(0, numpy.int32)])  # type: ignore[list-item]
    assert empty.values.dtype == torch.int32


@pytest.mark.parametrize("empty", [[], numpy.array([]), torch.tensor([])], ids=lambda e: type(e))
@pytest.mark.parametrize("width", [(), (2,)])
def test_a_row_without_elements_has_no_type_of_its_own(empty: Any, width: tuple[int, ...]) -> None:
    """A history of nothing is float64 in numpy and float32 in torch, with no trailing shape."""
    ids = numpy.ones((2, *width), numpy.int32)
    batch = collate([empty, ids, empty])
    assert batch.values.dtype == torch.int32
    assert batch.values.shape == (2, *width)
    assert batch.lengths().tolist() == [0, 2, 0]
    assert collate([empty, empty], dtype=torch.int16).values.dtype == torch.int16


def test_named_features() -> None:
    batch = collate_features(
        [
            {"clicks": [1, 2, 3], "age": 30, "price": torch.tensor(1.5)},
            {"clicks": [], "age": 40, "price": torch.tensor(2.5)},
        ],
        max_length=2,
    )
    clicks, age, price = batch["clicks"], batch["age"], batch["price"]
    assert isinstance(clicks, JaggedTensor)
    assert isinstance(age, Tensor)
    assert isinstance(price, Tensor)
    assert [row.tolist() for row in clicks.rows()] == [[2, 3], []]
    assert age.tolist() == [30, 40]
    assert price.tolist() == [1.5, 2.5]


def test_numbers_of_numpy_are_numbers() -> None:
    examples = [
        {"label": numpy.int64(3), "price": numpy.float32(1.5), "new": numpy.bool_(True)},
        {"label": numpy.int64(4), "price": numpy.float32(2.5), "new": numpy.bool_(False)},
    ]
    batch = collate_features(examples)  # type: ignore[arg-type]
    for name, want in (("label", [3, 4]), ("price", [1.5, 2.5]), ("new", [True, False])):
        vector = batch[name]
        assert isinstance(vector, Tensor)
        assert vector.tolist() == want


def test_features_of_a_given_dtype() -> None:
    dtypes = {"clicks": torch.int64, "prices": torch.float64, "label": torch.float32}
    for row in ([], [1, 2]):  # a batch without an event has the dtypes of all others
        example: Any = {"clicks": row, "prices": row, "label": 1}
        batch = collate_features([example, example], dtypes=dtypes)
        assert {name: feature.dtype for name, feature in batch.items()} == dtypes
    with pytest.raises(ValueError, match=r"dtypes must be of the features \['a'\], got \['b'\]"):
        collate_features([{"a": 1}], dtypes={"b": torch.int64})


def test_errors_of_named_features() -> None:
    with pytest.raises(ValueError, match="feature 'a': dtype must be given where all rows are emp"):
        collate_features([{"a": []}])
    with pytest.raises(TypeError, match=r"feature 'a': rows\[0\] must be a tensor .*, got 'xy'"):
        collate_features([{"a": "xy"}])
    with pytest.raises(ValueError, match="examples must hold at least one example"):
        collate_features([])
    with pytest.raises(TypeError, match=r"examples\[1\] must be a mapping of names, got list"):
        collate_features([{"a": 1}, [1]])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"features \['a'\], got \['b'\] in example 1"):
        collate_features([{"a": 1}, {"b": 1}])
    with pytest.raises(ValueError, match="feature 'a' must be a row in every example"):
        collate_features([{"a": [1]}, {"a": 1}])


def test_in_a_data_loader() -> None:
    rows = [torch.arange(n) for n in (3, 0, 2, 4, 1)]
    sampler = TokenBudgetSampler([len(row) for row in rows], budget=4)
    loader = DataLoader(rows, batch_sampler=sampler, collate_fn=collate)  # type: ignore[arg-type]
    seen = sorted(row.tolist() for batch in loader for row in batch.rows())
    assert seen == sorted(row.tolist() for row in rows)
