"""The layer that owns the tables of the relative bias."""

import pytest
import torch

from jagged import BucketedBias, ops
from jagged.modules import RelativeBias
from jagged.testing import random_jagged


def test_it_hands_on_its_own_parameters() -> None:
    layer = RelativeBias(5, num_buckets=7, bucket="sqrt", divisor=2.0)
    times = torch.arange(9)
    bias = layer(times)
    assert isinstance(bias, BucketedBias)
    assert bias.position_table is layer.position_table
    assert bias.time_table is layer.time_table
    assert bias.timestamps is times
    assert (bias.bucket, bias.divisor) == ("sqrt", 2.0)


def test_the_attention_trains_both_tables() -> None:
    """Only the entries that a pair of elements looked up get a gradient."""
    layer = RelativeBias(5, num_buckets=20)
    q = random_jagged([3, 0, 2], 1, 2)
    times = torch.tensor([0, 1, 1000, 0, 50])
    out = ops.hstu_attention(
        q.values, q.values, q.values, q.offsets, max_length=5, scale=1.0, bias=layer(times)
    )
    out.square().sum().backward()
    assert layer.position_table is not None
    assert layer.time_table is not None
    assert layer.position_table.grad is not None
    assert layer.time_table.grad is not None
    # Keys 0, 1 and 2 places back: entries 4, 3 and 2 of 9.
    assert layer.position_table.grad.nonzero().flatten().tolist() == [2, 3, 4]
    # |t_next - t| is 1, 1000, 999 and 1000 again, 0 taken as 1; and 50, 0 as 1, 50.
    assert layer.time_table.grad.nonzero().flatten().tolist() == [0, 12, 20]


def test_either_table_may_be_absent() -> None:
    assert list(RelativeBias(5, num_buckets=0).state_dict()) == ["position_table"]
    assert list(RelativeBias(None, position=False).state_dict()) == ["time_table"]
    assert RelativeBias(5, num_buckets=0)().time_table is None
    assert RelativeBias(5).state_dict()["position_table"].shape == (9,)
    assert RelativeBias(5).state_dict()["time_table"].shape == (129,)


def test_messages() -> None:
    with pytest.raises(
        ValueError, match="max_length must be at least 1 for a position table, got 0"
    ):
        RelativeBias(0)
    with pytest.raises(ValueError, match=r"max_length must be at least 1 .* got None"):
        RelativeBias(None)
    with pytest.raises(ValueError, match="num_buckets must not be negative, got -2"):
        RelativeBias(5, num_buckets=-2)
    with pytest.raises(ValueError, match='bucket must be "log" or "sqrt", got \'linear\''):
        RelativeBias(5, bucket="linear")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="divisor must be positive, got 0"):
        RelativeBias(5, divisor=0)
    with pytest.raises(ValueError, match=r"with a time_table: .* or num_buckets=0 in RelativeBias"):
        RelativeBias(5)()
    with pytest.raises(ValueError, match=r"timestamps must not be given .* without a time table"):
        RelativeBias(5, num_buckets=0)(torch.arange(3))
