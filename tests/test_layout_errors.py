"""`JaggedTensor`: what `validate`, the constructors and the methods refuse."""

from typing import Any

import numpy
import pytest
import torch

from jagged import JaggedTensor


@pytest.mark.parametrize(
    ("offsets", "max_length", "message"),
    [
        ([1, 2, 3], None, "offsets must start with 0, got 1"),
        ([0, 4, 2, 6], None, "offsets must never decrease, got 4 then 2 at row 1"),
        ([0, 2, 7], None, r"offsets\[-1\] must not exceed the 6 elements of values, got 7"),
        ([0, 2, 6], 3, "max_length must bound every row, got 3 but row 1 has 4 elements"),
    ],
)
def test_validate_names_the_broken_rule(
    offsets: list[int], max_length: int | None, message: str
) -> None:
    x = JaggedTensor(torch.zeros(6), torch.tensor(offsets), max_length)
    with pytest.raises(ValueError, match=message):
        x.validate()


@pytest.mark.parametrize(
    ("targets", "error", "message"),
    [
        ([0, 1, 0], ValueError, "must be in 0..0 for row 1 of 0 elements, got 1: attention would"),
        ([-1, 0, 0], ValueError, "must be in 0..2 for row 0 of 2 elements, got -1"),
        ([0, 0], ValueError, r"must have shape \[B\] = \[3\], got \[2\]"),
        ([0.0, 0.0, 0.0], TypeError, r"must be integers, got torch\.float32"),
    ],
)
def test_validate_looks_at_targets_too(
    targets: list[float], error: type[Exception], message: str
) -> None:
    x = JaggedTensor(torch.zeros(6), torch.tensor([0, 2, 2, 6]), 4)
    assert x.validate(torch.tensor([2, 0, 1])) is x
    with pytest.raises(error, match=f"num_targets {message}"):
        x.validate(torch.tensor(targets))


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda v, o: JaggedTensor([1.0], o), TypeError, "values must be a torch.Tensor, got list"),
        (lambda v, o: JaggedTensor(v[0], o), ValueError, "values must have at least one dimension"),
        (lambda v, o: JaggedTensor(v, o.float()), TypeError, "offsets must be int32 or int64"),
        (lambda v, o: JaggedTensor(v, o[:0]), ValueError, r"offsets must have B \+ 1 entries"),
        (lambda v, o: JaggedTensor(v, o[None]), ValueError, "offsets must be one-dimensional"),
        (lambda v, o: JaggedTensor(v, o.to("meta")), ValueError, "on the device of values"),
        (lambda v, o: JaggedTensor(v, o, -1), ValueError, "max_length must not be negative"),
        (lambda v, o: JaggedTensor(v, o, o[-1]), TypeError, "max_length must be a Python int"),
        (
            lambda v, o: JaggedTensor(v, o, None, v[:1]),
            ValueError,
            r"weights must have shape \[T\]",
        ),
        (lambda v, o: JaggedTensor.from_lengths(v, v), TypeError, "lengths must be integers"),
        (lambda v, o: JaggedTensor.from_rows([]), ValueError, "rows must hold at least one"),
        (lambda v, o: JaggedTensor.from_rows([v, v[:, None]]), ValueError, r"rows\[1\] must have"),
        (lambda v, o: JaggedTensor.from_padded(v, o), ValueError, r"dense must be \[B, N"),
        (lambda v, o: JaggedTensor.concat([]), ValueError, "at least one jagged tensor"),
        (lambda v, o: JaggedTensor.from_lengths(v[0], o), ValueError, "values must have at least"),
        (
            lambda v, o: JaggedTensor.from_rows([[1]]),
            TypeError,
            r"rows\[0\] must be a torch.Tensor",
        ),
        (lambda v, o: JaggedTensor.from_rows([v[0]]), ValueError, r"rows\[0\] must have at least"),
        (lambda v, o: JaggedTensor.from_row_ids(v[0], o, 2), ValueError, "values must have at"),
        (lambda v, o: JaggedTensor.from_row_ids(v, v, 2), TypeError, "ids must be integers"),
        (lambda v, o: JaggedTensor.from_row_ids(v, o, -1), ValueError, "num_rows must not be neg"),
        (lambda v, o: JaggedTensor(v, o).select(1), TypeError, "rows must be .* got int"),  # type: ignore[arg-type]
        (
            lambda v, o: JaggedTensor(v, o).select(o[None]),
            ValueError,
            r"rows .* got shape \[1, 3\]",
        ),
        (lambda v, o: JaggedTensor(v, o).select([0], total=-1), ValueError, "total must not be"),
        (lambda v, o: JaggedTensor(v, o).split([1, 1]), TypeError, "left_lengths must be a torch"),  # type: ignore[arg-type]
        (lambda v, o: JaggedTensor(v, o).split(v[1:]), TypeError, "left_lengths must be integers"),
        (
            lambda v, o: JaggedTensor(v, o).split(torch.ones(2, device="meta").long()),
            ValueError,
            "left_lengths must be on the device of values",
        ),
        (
            lambda v, o: JaggedTensor(v, o).split(o[1:], left_total=1, right_total=-1),
            ValueError,
            "right_total must not be negative",
        ),
        (
            lambda v, o: JaggedTensor.from_lengths(v, o.to("meta")),
            ValueError,
            "lengths must be on the device of values",
        ),
        (
            lambda v, o: JaggedTensor.from_padded(v[None], o[:1].to("meta")),
            ValueError,
            "lengths_or_mask must be on the device of dense",
        ),
        (
            lambda v, o: JaggedTensor.from_padded(v[None], v[:1]),
            TypeError,
            "lengths must be integers, got torch.float32",
        ),
        (
            lambda v, o: JaggedTensor.from_row_ids(v, v.long().to("meta"), 2),
            ValueError,
            "ids must be on the device of values",
        ),
        (
            lambda v, o: JaggedTensor(v.to_sparse(), o),
            ValueError,
            "values must be a strided tensor, got torch.sparse_coo",
        ),
        (lambda v, o: JaggedTensor(v, o, None, [1]), TypeError, "weights must be a torch"),
        (
            lambda v, o: JaggedTensor(v, o, None, v.to("meta")),
            ValueError,
            "weights must be on the device of values",
        ),
        (lambda v, o: JaggedTensor.from_padded([[1]], o), TypeError, "dense must be a torch"),
        (
            lambda v, o: JaggedTensor.from_padded(v[None], [1]),
            TypeError,
            "lengths_or_mask must be a torch",
        ),
        (
            lambda v, o: JaggedTensor.from_padded(v[None], torch.ones(1, 2) > 0),
            ValueError,
            r"mask must have shape \[B, N\] = \[1, 3\], got \[1, 2\]",
        ),
        (
            lambda v, o: JaggedTensor.from_padded(v[None], o),
            ValueError,
            r"lengths must have shape \[B\] = \[1\], got \[3\]",
        ),
        (lambda v, o: JaggedTensor.from_row_ids(v, [0], 2), TypeError, "ids must be a torch"),
        (
            lambda v, o: JaggedTensor.from_row_ids(v, o[:2], 2),
            ValueError,
            r"ids must have shape \[T\] = \[3\], got \[2\]",
        ),
        (lambda v, o: JaggedTensor(v, o).with_values([1]), TypeError, "values must be a torch"),
        (
            lambda v, o: JaggedTensor(v, o).split(o),
            ValueError,
            r"left_lengths must have shape \[B\] = \[2\], got \[3\]",
        ),
        (lambda v, o: JaggedTensor(v, o).validate([0, 0]), TypeError, "num_targets must be a"),
        (
            lambda v, o: JaggedTensor(v, o, None, v.to_sparse()),
            ValueError,
            "weights must be a strided tensor, got torch.sparse_coo",
        ),
        (
            lambda v, o: JaggedTensor(torch.nested.as_nested_tensor([v], layout=torch.jagged), o),
            ValueError,
            r"got a nested one: convert .*interop\.nested\.from_nested",
        ),
        (
            lambda v, o: JaggedTensor(v, o).select(v),
            TypeError,
            "rows must be integers, got torch.f",
        ),
        (lambda v, o: JaggedTensor(v, o).select([0.5]), TypeError, "rows must be integers"),
        (lambda v, o: JaggedTensor(v, o).select(numpy.int64(1)), TypeError, "got int64"),  # type: ignore[arg-type]
        (lambda v, o: JaggedTensor(v, o).select(None), TypeError, "rows must be .* got NoneType"),  # type: ignore[arg-type]
        (
            lambda v, o: JaggedTensor(v, o).select(v > 0),
            ValueError,
            r"mask must have shape \[B\]",
        ),
        (
            lambda v, o: JaggedTensor.from_padded(v[None], torch.ones(1, 3, dtype=torch.int64)),
            TypeError,
            r"a mask must be bool, got torch.int64: convert it with mask.bool\(\)",
        ),
        (lambda v, o: JaggedTensor.concat([v]), TypeError, r"parts\[0\] must be a JaggedTensor"),
        (lambda v, o: JaggedTensor.concat_batch([v]), TypeError, "JaggedTensor, got Tensor"),
        (
            lambda v, o: JaggedTensor.concat(JaggedTensor(v, o)),  # type: ignore[arg-type]
            TypeError,
            "parts must be a list of jagged tensors, got JaggedTensor",
        ),
        (
            lambda v, o: JaggedTensor(v, o).split(o[1:], left_total=-1),
            ValueError,
            "left_total must not be negative",
        ),
    ],
)
def test_constructors_say_what_is_wrong(build: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build(torch.zeros(3), torch.tensor([0, 1, 3]))


def test_concat_refuses_different_batches() -> None:
    example = JaggedTensor(torch.zeros(6), torch.tensor([0, 2, 2, 6]))
    with pytest.raises(ValueError, match=r"same number of rows, got \[3, 1\]"):
        JaggedTensor.concat([example, example.select([0])])


@pytest.mark.parametrize("join", [JaggedTensor.concat, JaggedTensor.concat_batch])
def test_joining_refuses_parts_that_differ_in_more_than_their_rows(join: Any) -> None:
    offsets = torch.tensor([0, 2])
    ids = JaggedTensor(torch.tensor([2**24 + 1, 1]), offsets, weights=torch.ones(2))
    for other, error, message in (
        (torch.ones(2), TypeError, r"parts\[1\].values must have the dtype of parts\[0\].values"),
        (ids.values[:, None], ValueError, r"parts\[1\].values must have the trailing shape"),
    ):
        with pytest.raises(error, match=message):
            join([ids, JaggedTensor(other, offsets, weights=torch.ones(2))])
    doubled = JaggedTensor(ids.values, offsets, weights=torch.ones(2).double())
    with pytest.raises(TypeError, match=r"parts\[1\].weights must have the dtype"):
        join([ids, doubled])
    assert join([ids, JaggedTensor(ids.values, offsets)]).weights is None


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_nested_values_of_a_strided_layout() -> None:
    """The default of torch.nested, which says that its layout is strided."""
    nested = torch.nested.as_nested_tensor([torch.zeros(2)])
    with pytest.raises(ValueError, match=r"got a nested one: convert .*interop\.nested\.from_n"):
        JaggedTensor(nested, torch.tensor([0, 2]))
