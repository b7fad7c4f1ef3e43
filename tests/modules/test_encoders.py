"""Positions and buckets of time, against numbers by hand and the formula element by element."""

import math

import pytest
import torch

from jagged import JaggedTensor, modules
from jagged.testing import random_jagged

OFFSETS = torch.tensor([0, 5, 5, 8])


def test_positions_by_hand() -> None:
    x = JaggedTensor(torch.zeros(10, 2), OFFSETS)  # two elements of capacity behind
    encoder = modules.PositionEncoder(10, 2)
    assert encoder.positions(x).tolist() == [5, 4, 3, 2, 1, 3, 2, 1, 0, 0]
    targets = torch.tensor([2, 0, 3])
    assert encoder.positions(x, targets).tolist() == [3, 2, 1, 0, 0, 0, 0, 0, 0, 0]
    # Two contextual elements have the first two positions, all others come behind them.
    encoder = modules.PositionEncoder(10, 2, contextual=2)
    assert encoder.positions(x).tolist() == [0, 1, 5, 4, 3, 0, 1, 3, 0, 0]
    assert encoder.positions(x, targets).tolist() == [0, 1, 3, 2, 2, 0, 1, 2, 0, 0]
    # Old elements share the last position.
    assert modules.PositionEncoder(4, 2).positions(x).tolist() == [3, 3, 3, 2, 1, 3, 2, 1, 0, 0]


def test_targets_of_any_number_leave_the_history_where_it_is() -> None:
    encoder = modules.PositionEncoder(20, 3, contextual=1)
    history = random_jagged([6], 3)
    want = encoder(history).values
    for targets in (1, 4):
        x = JaggedTensor(
            torch.cat([history.values, torch.zeros(targets, 3)]), torch.tensor([0, 6 + targets])
        )
        out = encoder(x, torch.tensor([targets])).values
        assert torch.equal(out[:6], want)
        assert torch.equal(out[6:], encoder.weight[1].expand(targets, 3))


def test_more_targets_than_elements_are_all_elements() -> None:
    encoder = modules.PositionEncoder(10, 2)
    x = JaggedTensor(torch.zeros(8, 2), OFFSETS)
    assert encoder.positions(x, torch.tensor([9, 1, 3])).tolist() == [0] * 8


def test_buckets_by_hand() -> None:
    x = JaggedTensor(torch.zeros(9, 2), OFFSETS)  # one element of capacity behind
    minute = 60
    times = torch.tensor([0, 84, 91, 99, 100, 7, 7, 7]) * minute
    times = torch.cat([times, torch.tensor([-(10**12)])])
    root = modules.TimestampEncoder(12, 2)
    # sqrt of 100, 16, 9, 1, 0 minutes
    assert root.buckets(x, times).tolist() == [10, 4, 3, 1, 0, 0, 0, 0, 0]
    assert modules.TimestampEncoder(7, 2).buckets(x, times).tolist() == [7, 4, 3, 1, 0, 0, 0, 0, 0]
    log = modules.TimestampEncoder(12, 2, "log")
    # ln of 100, 16, 9, 1 minutes is 4.6, 2.8, 2.2, 0
    assert log.buckets(x, times).tolist() == [4, 2, 2, 0, 0, 0, 0, 0, 0]
    seconds = modules.TimestampEncoder(100, 2, "sqrt", unit=1.0)
    assert seconds.buckets(x, times).tolist()[:5] == [77, 30, 23, 7, 0]


def test_seconds_since_1970_keep_their_differences() -> None:
    """float32 has 128 seconds between two numbers there: the difference must come first."""
    x = JaggedTensor(torch.zeros(3, 2), torch.tensor([0, 3]))
    times = 1_700_000_000 + torch.tensor([0, 49, 50])
    encoder = modules.TimestampEncoder(100, 2, "sqrt", unit=1.0)
    assert encoder.buckets(x, times).tolist() == [7, 1, 0]


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32])
def test_times_apart_by_more_than_their_dtype_holds(dtype: torch.dtype) -> None:
    x = JaggedTensor(torch.zeros(3, 2), torch.tensor([0, 3]))
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    times = torch.tensor([least, most - 4, most], dtype=dtype)
    encoder = modules.TimestampEncoder(15, 2, "sqrt", unit=1.0)
    assert encoder.buckets(x, times).tolist() == [15, 2, 0]


@pytest.mark.parametrize("offsets", [[0, 9], [0, 3, 1, 4], [2, 3, 4], [0, -1, 9, -3, 4]])
def test_wrong_offsets_lead_to_no_address_outside(offsets: list[int]) -> None:
    """They are an error of contents, which no layer looks for: but on a GPU, where an index out of
    range ends the process, a wrong batch must not."""
    x = JaggedTensor(torch.zeros(4, 2), torch.tensor(offsets))
    assert modules.PositionEncoder(5, 2, contextual=1)(x).values.shape == (4, 2)
    assert modules.TimestampEncoder(5, 2)(x, torch.arange(4)).values.shape == (4, 2)


def test_encoders_add_their_vectors_and_learn_them() -> None:
    x = random_jagged([2, 0, 1], 3, dtype=torch.float64)
    position = modules.PositionEncoder(4, 3).double()
    out = position(x).values
    want = x.values + position.weight[[2, 1, 1]]
    torch.testing.assert_close(out, want)
    out.backward(torch.tensor([[1.0], [10.0], [100.0]], dtype=torch.float64).expand(3, 3))
    assert position.weight.grad is not None
    assert position.weight.grad[:, 0].tolist() == [0.0, 110.0, 1.0, 0.0]

    time = modules.TimestampEncoder(4, 3).double()
    out = time(x, torch.tensor([0, 9 * 60, 5])).values
    torch.testing.assert_close(out, x.values + time.weight[[3, 0, 0]])


def test_the_result_has_the_dtype_of_the_input() -> None:
    x = random_jagged([2, 0, 3], 3, dtype=torch.bfloat16)
    position, time = modules.PositionEncoder(4, 3), modules.TimestampEncoder(4, 3)
    out = time(position(x), torch.arange(5) * 60).values
    assert out.dtype == torch.bfloat16
    want = x.values + position.weight[[2, 1, 3, 2, 1]] + time.weight[[1, 0, 1, 1, 0]]
    torch.testing.assert_close(out.float(), want, rtol=2e-2, atol=2e-2)


def test_initial_values() -> None:
    position, time = modules.PositionEncoder(400, 50), modules.TimestampEncoder(399, 50)
    for encoder, bound in ((position, 1 / 20), (time, 1 / math.sqrt(399))):
        assert encoder.weight.shape == (400, 50)
        assert 0.99 * bound < encoder.weight.abs().max() <= bound


def test_messages() -> None:
    x = random_jagged([2, 3], 3)
    with pytest.raises(
        ValueError, match=r"num_positions must be greater than contextual \(4\), got 4"
    ):
        modules.PositionEncoder(4, 3, contextual=4)
    with pytest.raises(TypeError, match="contextual must be a Python int known on the host, got N"):
        modules.PositionEncoder(4, 3, contextual=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"num_targets must have shape \[B\] = \[2\], got \[3\]"):
        modules.PositionEncoder(4, 3)(x, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"x.values must have shape \[T, embedding_dim\]"):
        modules.PositionEncoder(4, 2)(x)
    with pytest.raises(ValueError, match=r"timestamps must have shape \[T\] = \[5\], got \[2\]"):
        modules.TimestampEncoder(4, 3)(x, torch.zeros(2, dtype=torch.int64))
    # float32 counts seconds since 1970 in steps of two minutes.
    with pytest.raises(TypeError, match=r"timestamps must be integers, got torch\.float32"):
        modules.TimestampEncoder(4, 3)(x, torch.zeros(5))
    with pytest.raises(TypeError, match=r"num_targets must be integers, got torch\.float32"):
        modules.PositionEncoder(4, 3)(x, torch.zeros(2))
    with pytest.raises(TypeError, match=r"num_targets must be integers, got torch\.complex64"):
        modules.PositionEncoder(4, 3)(x, torch.zeros(2) + 0j)
    with pytest.raises(TypeError, match=r"x.values must be float32, .* got torch\.int64"):
        modules.PositionEncoder(4, 3)(JaggedTensor(x.values.long(), x.offsets))
    with pytest.raises(ValueError, match='bucket must be "sqrt" or "log", got \'linear\''):
        modules.TimestampEncoder(4, 3, "linear")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unit must be positive, got 0"):
        modules.TimestampEncoder(4, 3, unit=0)
    with pytest.raises(ValueError, match="num_buckets must not be negative, got -1"):
        modules.TimestampEncoder(-1, 3)


def test_repr_and_names() -> None:
    assert repr(modules.PositionEncoder(4, 3, 1)) == "PositionEncoder(4, 3, contextual=1)"
    assert repr(modules.TimestampEncoder(4, 3)) == "TimestampEncoder(4, 3, bucket='sqrt', unit=60)"
    assert list(modules.PositionEncoder(4, 3).state_dict()) == ["weight"]
    assert list(modules.TimestampEncoder(4, 3).state_dict()) == ["weight"]
