"""`JaggedTensor`: constructors, structure, row surgery."""

import copy
import dataclasses
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils import _pytree as pytree

from jagged import JaggedTensor, layout, ops
from jagged.testing import random_jagged

LENGTHS = st.lists(st.integers(0, 5), min_size=0, max_size=6)


def rows_of(x: JaggedTensor) -> list[list[Any]]:
    return [row.tolist() for row in x.rows()]


@pytest.fixture
def example() -> JaggedTensor:
    """Three rows, the middle one empty."""
    return JaggedTensor(torch.arange(1.0, 7.0), torch.tensor([0, 2, 2, 6]), 4)


# Constructors --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "offsets_dtype"),
    [
        (torch.int32, torch.int32),
        (torch.int64, torch.int64),
        (torch.uint8, torch.int64),
        (torch.uint32, torch.int64),
    ],
)
def test_from_lengths(dtype: torch.dtype, offsets_dtype: torch.dtype) -> None:
    x = JaggedTensor.from_lengths(
        torch.arange(6), torch.tensor([2, 0, 4], dtype=dtype), max_length=4
    )
    assert rows_of(x) == [[0, 1], [], [2, 3, 4, 5]]
    assert x.offsets.dtype == offsets_dtype
    assert x.max_length == 4


def test_from_lengths_keeps_int64_when_the_capacity_does_not_fit_int32() -> None:
    values = torch.empty(1).expand(2**31)
    x = JaggedTensor.from_lengths(values, torch.tensor([2**30, 2**30], dtype=torch.int32))
    assert x.offsets.tolist() == [0, 2**30, 2**31]


def test_from_rows() -> None:
    rows = [torch.ones(2, 3), torch.zeros(0, 3), torch.full((1, 3), 2.0)]
    x = JaggedTensor.from_rows(rows)
    assert x.max_length == 2
    assert x.offsets.tolist() == [0, 2, 2, 3]
    for got, want in zip(x.rows(), rows, strict=True):
        assert torch.equal(got, want)


def test_from_padded_with_lengths_clamps_them() -> None:
    dense = torch.arange(6.0).reshape(2, 3).requires_grad_()
    x = JaggedTensor.from_padded(dense, torch.tensor([2, 7]))
    assert rows_of(x) == [[0, 1], [3, 4, 5]]
    assert x.max_length == 3
    assert x.validate() is x
    x.values.sum().backward()
    assert dense.grad is not None
    assert dense.grad.tolist() == [[1, 1, 0], [1, 1, 1]]


def test_from_padded_with_a_mask_takes_elements_in_their_order() -> None:
    dense = torch.arange(8.0).reshape(2, 4, 1).requires_grad_()
    mask = torch.tensor([[True, False, True, False], [False, False, False, True]])
    x = JaggedTensor.from_padded(dense, mask)
    assert rows_of(x) == [[[0.0], [2.0]], [[7.0]]]
    x.values.square().sum().backward()
    assert dense.grad is not None
    assert dense.grad.flatten().tolist() == [0, 0, 4, 0, 0, 0, 0, 14]


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int64]
)
def test_ids_of_any_dtype_come_from_padded_and_go_back(dtype: torch.dtype) -> None:
    dense = torch.tensor([[1, 0, 1], [0, 1, 1]]).to(dtype)
    mask = torch.tensor([[False, True, True], [True, False, False]])
    x = JaggedTensor.from_padded(dense, mask)
    assert (x.dtype, rows_of(x)) == (dtype, [[0, 1], [0]])
    assert JaggedTensor.from_padded(x.to_padded(), x.lengths()).values.tolist() == [0, 1, 0]


def test_from_padded_with_a_given_total_leaves_a_zero_tail() -> None:
    x = JaggedTensor.from_padded(torch.ones(2, 3), torch.tensor([1, 2]), total=5)
    assert x.values.tolist() == [1, 1, 1, 0, 0]
    assert len(x) == 2


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.uint16])
def test_from_row_ids_of_a_dtype_that_does_not_hold_all_rows(dtype: torch.dtype) -> None:
    x = JaggedTensor.from_row_ids(torch.arange(3), torch.tensor([0, 0, 2], dtype=dtype), 300)
    assert x.validate().lengths().tolist() == [2, 0, 1] + 297 * [0]


def test_from_row_ids_with_empty_rows_and_a_tail() -> None:
    ids = torch.tensor([0, 0, 2, 4, 4])
    x = JaggedTensor.from_row_ids(torch.arange(5), ids, 4)
    assert rows_of(x) == [[0, 1], [], [2], []]
    assert x.row_ids().tolist() == [0, 0, 2, 4, 4]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_row_ids_stay_in_range_whatever_the_offsets_hold(dtype: torch.dtype) -> None:
    values = torch.zeros(4)
    for offsets, ids in (
        ([0, 0, 0, 2], [2, 2, 3, 3]),
        ([0, 9, -1, 2], [1, 1, 2, 2]),
        ([0], [0, 0, 0, 0]),
    ):
        x = JaggedTensor(values, torch.tensor(offsets, dtype=dtype))
        assert x.row_ids().tolist() == ids
        assert x.row_ids().dtype == torch.int64


@given(LENGTHS)
def test_constructors_agree(lengths: list[int]) -> None:
    x = random_jagged(lengths, 2)
    if lengths:
        assert rows_of(JaggedTensor.from_rows(x.rows())) == rows_of(x)
    again = JaggedTensor.from_row_ids(x.values, x.row_ids(), len(lengths))
    assert again.offsets.tolist() == x.offsets.tolist()
    padded = JaggedTensor.from_padded(x.to_padded(), x.lengths())
    assert torch.equal(padded.values, x.values)
    assert x.lengths().tolist() == lengths
    assert len(x) == len(lengths)


# Row surgery ---------------------------------------------------------------------------------


def test_select_by_index_mask_slice_and_list(example: JaggedTensor) -> None:
    assert rows_of(example.select(torch.tensor([2, 0, 2]))) == [[3, 4, 5, 6], [1, 2], [3, 4, 5, 6]]
    assert rows_of(example.select(torch.tensor([True, True, False]))) == [[1, 2], []]
    assert rows_of(example.select(slice(1, None))) == [[], [3, 4, 5, 6]]
    assert rows_of(example.select([-1])) == [[3, 4, 5, 6]]
    assert rows_of(example.select((2, 1))) == [[3, 4, 5, 6], []]
    assert rows_of(example.select(range(2))) == [[1, 2], []]
    assert rows_of(example.select([])) == []


def test_select_with_a_total_pads_with_zeros(example: JaggedTensor) -> None:
    x = example.select([0], total=5)
    assert x.values.tolist() == [1, 2, 0, 0, 0]
    assert rows_of(x) == [[1, 2]]


def test_concat_joins_row_by_row() -> None:
    left = JaggedTensor.from_rows([torch.tensor([1, 2, 3]), torch.tensor([4])])
    right = JaggedTensor.from_rows([torch.tensor([5, 6]), torch.tensor([7])])
    joined = JaggedTensor.concat([left, right])
    assert joined.values.tolist() == [1, 2, 3, 5, 6, 4, 7]
    assert joined.lengths().tolist() == [5, 2]
    assert joined.max_length == 5
    first, second = joined.split(left.lengths())
    assert rows_of(first) == rows_of(left)
    assert rows_of(second) == rows_of(right)


@pytest.mark.parametrize("join", [JaggedTensor.concat, JaggedTensor.concat_batch])
def test_parts_come_from_anything_that_can_be_listed(example: JaggedTensor, join: Any) -> None:
    features = {"clicks": example, "buys": example}
    want = rows_of(join([example, example]))
    assert rows_of(join(features.values())) == want
    assert rows_of(join(part for part in features.values())) == want
    assert rows_of(JaggedTensor.from_rows(iter(example.rows()))) == rows_of(example)


def test_concat_never_takes_from_a_tail() -> None:
    left = random_jagged([1, 0, 2], 2, tail=3)
    right = random_jagged([2, 1, 0], 2, tail=1, seed=1)
    joined = JaggedTensor.concat([left, right])
    want = [a + b for a, b in zip(rows_of(left), rows_of(right), strict=True)]
    assert rows_of(joined) == want
    assert joined.values.isfinite().all()
    batch = JaggedTensor.concat_batch([left, right])
    assert rows_of(batch) == rows_of(left) + rows_of(right)
    assert batch.values.isfinite().all()


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=4))
def test_concat_of_many(lengths: list[list[int]]) -> None:
    parts = [random_jagged(one, 1, tail=i, seed=i) for i, one in enumerate(lengths)]
    joined = JaggedTensor.concat(parts)
    assert rows_of(joined) == [[e for p in parts for e in rows_of(p)[i]] for i in range(3)]
    assert rows_of(JaggedTensor.concat_batch(parts)) == [r for p in parts for r in rows_of(p)]


@pytest.mark.parametrize("join", [JaggedTensor.concat, JaggedTensor.concat_batch])
def test_joining_past_what_int32_holds(join: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []

    def gather(values: torch.Tensor, first: torch.Tensor, _: object, total: int) -> torch.Tensor:
        starts.extend(first.tolist())  # the copy itself would take 8 bytes an element
        return values.new_zeros(total, 0)

    monkeypatch.setattr(layout, "gather_rows", gather)
    part = JaggedTensor(torch.empty(2**30, 0), torch.tensor([0, 2**30], dtype=torch.int32))
    assert join([part]).offsets.dtype == torch.int32
    starts.clear()
    joined = join([part] * 3)
    assert starts == [0, 2**30, 2**31]
    assert int(joined.offsets[-1]) == 3 * 2**30


def test_surgery_is_differentiable_and_moves_weights() -> None:
    values = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    offsets = torch.tensor([0, 1, 3, 3])

    def through(values: torch.Tensor) -> torch.Tensor:
        x = JaggedTensor(values, offsets)
        both = JaggedTensor.concat([x, x.select([2, 1, 0])])
        return both.split(torch.tensor([1, 1, 1]))[1].values

    assert torch.autograd.gradcheck(through, (values,))
    x = JaggedTensor(torch.arange(3.0), torch.tensor([0, 1, 3]), weights=torch.tensor([7, 8, 9]))
    weights = x.select([1, 0]).weights
    assert weights is not None
    assert weights.tolist() == [8, 9, 7]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.uint16])
def test_select_by_an_index_of_any_integer_dtype(example: JaggedTensor, dtype: torch.dtype) -> None:
    # Three of them, which torch would take for a mask where they are uint8.
    assert rows_of(example.select(torch.tensor([2, 0, 1], dtype=dtype))) == [
        [3, 4, 5, 6],
        [1, 2],
        [],
    ]


def test_a_left_part_with_room_to_spare_loses_nothing(example: JaggedTensor) -> None:
    left, right = example.split(torch.tensor([1, 0, 2]), left_total=5)
    assert left.validate().values.tolist() == [1, 3, 4, 0, 0]
    assert rows_of(right.validate()) == [[2], [], [5, 6]]
    left, right = example.split(torch.tensor([1, 0, 2]), left_total=3, right_total=3)
    assert rows_of(left.validate()) == [[1], [], [3, 4]]
    assert right.validate().values.tolist() == [2, 5, 6]


def test_a_split_at_a_length_that_the_offsets_do_not_hold(example: JaggedTensor) -> None:
    x = JaggedTensor(example.values, example.offsets.to(torch.int32))
    for dtype, first in ((torch.int64, 2**31), (torch.uint32, 2**32 - 1)):
        lengths = torch.tensor([first, 0, 4]).to(dtype)
        left, right = x.split(lengths)
        assert left.offsets.dtype == torch.int32
        assert rows_of(left.validate()) == [[1, 2], [], [3, 4, 5, 6]]
        assert rows_of(right.validate()) == [[], [], []]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.uint16, torch.int32])
def test_from_padded_with_lengths_of_a_dtype_that_does_not_hold_n(dtype: torch.dtype) -> None:
    dense = torch.arange(140_000.0).reshape(2, 70_000)
    x = JaggedTensor.from_padded(dense, torch.tensor([3, 100], dtype=dtype))
    assert x.validate().lengths().tolist() == [3, 100]
    assert x.offsets.dtype == (torch.int32 if dtype == torch.int32 else torch.int64)


# Structure -----------------------------------------------------------------------------------


def test_rows_device_and_dtype(example: JaggedTensor) -> None:
    assert example.num_rows == len(example) == 3
    assert (example.device, example.dtype) == (example.values.device, example.values.dtype)


def test_a_bound_of_numpy_is_an_int() -> None:
    """torch.compile, torch.load and pytrees know no other."""
    x = JaggedTensor(torch.ones(2), torch.tensor([0, 2]), numpy.int32(2))  # type: ignore[arg-type]
    assert type(x.max_length) is int
    padded = torch.compile(lambda x: x.to_padded(), fullgraph=True, backend="eager")
    assert padded(x).tolist() == [[1.0, 1.0]]


def test_with_values_keeps_the_offsets_object(example: JaggedTensor) -> None:
    doubled = example.with_values(example.values * 2)
    assert doubled.offsets is example.offsets
    assert doubled.max_length == 4
    with pytest.raises(ValueError, match=r"values must have 6 elements .* got shape \[5\]"):
        example.with_values(torch.zeros(5))


def test_to_casts_values_only() -> None:
    x = JaggedTensor(torch.ones(2), torch.tensor([0, 2]), weights=torch.tensor([1, 2]))
    half = x.to(dtype=torch.bfloat16)
    assert half.values.dtype == torch.bfloat16
    assert half.offsets.dtype == torch.int64
    assert half.weights is not None
    assert half.weights.dtype == torch.int64
    assert x.to(torch.bfloat16).values.dtype == torch.bfloat16
    assert x.to("cpu", torch.float16).values.dtype == torch.float16
    with pytest.raises(TypeError, match=r"one dtype, got torch\.float16 and torch\.float32"):
        x.to(torch.float16, torch.float32)


@pytest.mark.parametrize("weighted", [False, True])
def test_every_part_is_recorded_on_a_stream(
    example: JaggedTensor, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU, which has no streams; the allocator's side of it is torch's."""
    if weighted:
        example = dataclasses.replace(example, weights=torch.ones(6))
    seen = []
    monkeypatch.setattr(Tensor, "record_stream", lambda part, stream: seen.append((part, stream)))
    stream = object()
    example.record_stream(stream)  # type: ignore[arg-type]
    parts = [example.values, example.offsets, *([example.weights] if weighted else [])]
    assert all(
        at is part and where is stream for (at, where), part in zip(seen, parts, strict=True)
    )


def test_to_padded(example: JaggedTensor) -> None:
    assert example.to_padded(3, -1.0).tolist() == [[1, 2, -1], [-1, -1, -1], [3, 4, 5]]
    assert example.to_padded().shape == (3, 4)
    with pytest.raises(ValueError, match="max_length is not known"):
        JaggedTensor(example.values, example.offsets).to_padded()


def test_is_a_pytree_whose_bound_is_no_leaf(example: JaggedTensor) -> None:
    leaves, spec = pytree.tree_flatten(example)
    assert [id(leaf) for leaf in leaves] == [id(example.values), id(example.offsets)]
    assert pytree.tree_unflatten(leaves, spec).max_length == 4
    named = pytree.tree_map(lambda leaf: "x", example)
    assert named.values == "x"
    assert "JaggedTensor" in repr(named)


@pytest.mark.parametrize("weighted", [False, True])
def test_every_leaf_is_a_tensor(example: JaggedTensor, weighted: bool) -> None:
    """What `tree_map(lambda leaf: leaf.to(device), batch)` needs."""
    weights = torch.arange(6) if weighted else None
    x = JaggedTensor(example.values, example.offsets, 4, weights)
    moved = pytree.tree_map(lambda leaf: leaf.to("meta"), {"history": x})["history"]
    assert moved.max_length == 4
    assert all(leaf.is_meta for leaf in pytree.tree_leaves(moved))
    assert (moved.weights is not None) == weighted
    paths = [pytree.keystr(path) for path, _ in pytree.tree_leaves_with_path(x)]
    assert paths == [".values", ".offsets", ".weights"][: len(pytree.tree_leaves(x))]
    spec = pytree.tree_structure(x)  # of a saved export
    assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec


def test_copies_and_pickles(example: JaggedTensor) -> None:
    for clone in (copy.deepcopy(example), pickle.loads(pickle.dumps(example))):
        assert rows_of(clone) == rows_of(example)
        assert clone.max_length == 4


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a checkpoint"])
def test_is_loaded_as_data_by_torch(inside: bool) -> None:
    """`torch.load` as it is by default, which unpickles nothing but data."""
    values, weights = torch.randn(7, 2, dtype=torch.bfloat16), torch.arange(7)
    x = JaggedTensor(values, torch.tensor([0, 2, 2, 6], dtype=torch.int32), 5, weights)
    file = io.BytesIO()
    torch.save({"step": 3, "history": [x]} if inside else x, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    again = loaded["history"][0] if inside else loaded
    assert isinstance(again, JaggedTensor)
    assert again.validate().max_length == 5
    assert again.weights is not None
    for got, want in ((again.values, values), (again.offsets, x.offsets), (again.weights, weights)):
        assert torch.equal(got, want)
        assert got.dtype == want.dtype


def test_repr_shows_rows(example: JaggedTensor) -> None:
    assert repr(example) == (
        "JaggedTensor(3 rows, 6 elements, float32, cpu, max_length=4\n"
        "  0: [1, 2]\n  1: []\n  2: [3, 4, 5, 6])"
    )
    weighted = JaggedTensor(example.values, example.offsets, None, torch.arange(6))
    assert repr(weighted).startswith("JaggedTensor(3 rows, 6 elements, float32, cpu, weights int64")
    long = repr(random_jagged([3] * 50, 9, tail=2))
    assert "44 more rows" in long
    assert "nan" not in long
    assert len(long.splitlines()) == 8
    small = JaggedTensor(torch.tensor([1e-5, 0.0, -1 / 3, torch.nan, 1e30]), torch.tensor([0, 5]))
    assert repr(small).endswith("0: [1e-05, 0, -0.3333, nan, 1e+30])")
    meta = JaggedTensor(torch.empty(3, device="meta"), torch.empty(3, device="meta").long())
    assert repr(meta) == "JaggedTensor(2 rows, ? elements, float32, meta)"


def test_is_frozen_and_compares_by_identity(example: JaggedTensor) -> None:
    with pytest.raises(AttributeError):
        example.values = torch.zeros(1)  # type: ignore[misc]
    assert example != JaggedTensor(example.values, example.offsets, 4)


def test_compiles_with_changing_lengths() -> None:
    @torch.compile(fullgraph=True, dynamic=True, backend="aot_eager")
    def both(x: JaggedTensor, y: JaggedTensor) -> JaggedTensor:
        return JaggedTensor.concat([x, y.with_values(y.values * 2)])

    for lengths in ([1, 2], [3, 0, 2], [5, 1, 1, 0]):
        x = random_jagged(lengths, 3)
        got = both(x, x)
        want = [torch.cat([row, 2 * row]).tolist() for row in x.rows()]
        assert rows_of(got) == want


@torch._dynamo.config.patch(capture_scalar_outputs=True)  # older versions need to be told
@pytest.mark.parametrize(
    "cut",
    [
        lambda x: x.split((x.lengths() - 2).clamp(min=0))[1],
        lambda x: x.select(x.lengths() > 1),
        lambda x: JaggedTensor.from_padded(x.to_padded(4), x.lengths()),
    ],
    ids=["newest of a row", "some rows", "from padded"],
)
def test_a_number_that_is_read_compiles_in_one_graph(
    cut: Callable[[JaggedTensor], JaggedTensor],
) -> None:
    """Without `total`, and what comes after computes on as many elements as were found."""

    def pooled(x: JaggedTensor) -> Tensor:
        kept = cut(x)
        return ops.mean(kept.with_values(kept.values * 2).values, kept.offsets)

    compiled = torch.compile(pooled, fullgraph=True, dynamic=True, backend="aot_eager")
    for lengths in ([1, 2, 5], [3, 0, 2, 7], [0, 0, 1]):
        x = random_jagged(lengths, 3, tail=2)
        torch.testing.assert_close(compiled(x), pooled(x))


def test_exports_a_cut_to_the_newest() -> None:
    class Newest(torch.nn.Module):
        def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
            x = JaggedTensor.from_lengths(values, lengths)
            newest = x.split(lengths - 2)[1]
            return ops.sum(newest.values, newest.offsets)

    def given(lengths: list[int]) -> tuple[Tensor, Tensor]:
        return torch.arange(1.0, sum(lengths) + 1), torch.tensor(lengths)

    any_size = {0: torch.export.Dim.DYNAMIC}
    exported = torch.export.export(
        Newest(), given([3, 1, 5, 0]), dynamic_shapes=(any_size, any_size), strict=False
    )
    assert exported.module()(*given([1, 4, 2])).tolist() == [1, 4 + 5, 6 + 7]
