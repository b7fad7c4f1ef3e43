"""What hstu_attention refuses, and what it says."""

from typing import Any

import pytest
import torch

import jagged
from jagged import BucketedBias, HSTUMask

T, H, D = 5, 2, 3
OFFSETS = torch.tensor([0, 2, 5])


def call(**changes: Any) -> torch.Tensor:
    x = torch.ones(T, H, D)
    given: dict[str, Any] = {"q": x, "k": x, "v": x, "offsets": OFFSETS}
    given |= {"max_length": 3, "scale": 0.5} | changes
    return jagged.ops.hstu_attention(**given)


def test_the_arguments_themselves_are_fine() -> None:
    assert call().shape == (T, H, D)
    assert call(v=torch.ones(T, H, 7)).shape == (T, H, 7)
    assert call(scale=1).shape == (T, H, D)


@pytest.mark.parametrize("name", ["max_length", "scale"])
def test_what_has_no_default(name: str) -> None:
    x = torch.ones(T, H, D)
    given: dict[str, Any] = {"max_length": 3, "scale": 0.5}
    del given[name]
    with pytest.raises(TypeError, match=rf"missing 1 required keyword-only argument: '{name}'"):
        jagged.ops.hstu_attention(x, x, x, OFFSETS, **given)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"q": torch.ones(T, D)}, ValueError, r"q must have 3 dimensions, got shape \[5, 3\]"),
        ({"q": [1.0]}, TypeError, r"q must be a torch\.Tensor, got list"),
        (
            {"q": torch.ones(T, H, D, dtype=torch.int64)},
            TypeError,
            r"q must be float32, bfloat16, float16 .* got torch\.int64",
        ),
        (
            {"q": torch.ones(T, D, H).mT},
            ValueError,
            r"q must have stride 1 in its last dimension, got strides .*q\.contiguous\(\)",
        ),
        ({"k": torch.ones(T, D, H).mT}, ValueError, r"k must have stride 1 .*k\.contiguous\(\)"),
        ({"v": torch.ones(T, D, H).mT}, ValueError, r"v must have stride 1 .*v\.contiguous\(\)"),
        (
            {"k": torch.ones(T + 1, H, D)},
            ValueError,
            r"k must have shape \[T, H, D\] of q = \[5, 2, 3\], got \[6, 2, 3\]",
        ),
        (
            {"k": torch.ones(T, H + 1, D)},
            ValueError,
            r"k must have shape \[T, H, D\] of q = \[5, 2, 3\], got \[5, 3, 3\]",
        ),
        (
            {"k": torch.ones(T, H, D + 1)},
            ValueError,
            r"k must have shape \[T, H, D\] of q = \[5, 2, 3\], got \[5, 2, 4\]",
        ),
        (
            {"v": torch.ones(T - 1, H, D)},
            ValueError,
            r"v must have shape \[T, H, V\].* = \[5, 2, any\], got \[4, 2, 3\]",
        ),
        (
            {"v": torch.ones(T, 1, D)},
            ValueError,
            r"v must have shape \[T, H, V\].* = \[5, 2, any\], got \[5, 1, 3\]",
        ),
        ({"v": torch.ones(T, H)}, ValueError, r"v must have shape \[T, H, V\].*got \[5, 2\]"),
        (
            {"k": torch.ones(T, H, D).double()},
            TypeError,
            r"k must have the dtype of q \(torch\.float32\), got torch\.float64",
        ),
        (
            {"v": torch.ones(T, H, D).bfloat16()},
            TypeError,
            r"v must have the dtype of q \(torch\.float32\), got torch\.bfloat16",
        ),
        (
            {"k": torch.ones(T, H, D, device="meta")},
            ValueError,
            r"k must be on the device of q \(cpu\), got meta",
        ),
        (
            {"offsets": OFFSETS.to(torch.int16)},
            TypeError,
            r"offsets must be int32 or int64, got torch\.int16",
        ),
        ({"offsets": OFFSETS[:0]}, ValueError, r"offsets must have B \+ 1 entries"),
        (
            {"offsets": OFFSETS.to("meta")},
            ValueError,
            r"offsets must be on the device of q \(cpu\), got meta",
        ),
        ({"max_length": -1}, ValueError, r"max_length must not be negative, got -1"),
        ({"max_length": None}, TypeError, r"max_length must be a Python int .* got NoneType"),
        ({"max_length": 2.0}, TypeError, r"max_length must be a Python int .* got float"),
        (
            {"max_length": torch.tensor(3)},
            TypeError,
            r"max_length must be a Python int known on the host, got Tensor",
        ),
        ({"scale": None}, TypeError, r"scale must be a number or a tensor \[T\], got NoneType"),
        ({"scale": "1/n"}, TypeError, r"scale must be a number or a tensor \[T\], got str"),
        (
            {"scale": torch.ones(T, requires_grad=True)},
            ValueError,
            r"scale gets no gradient, and this one requires it: pass scale\.detach\(\)",
        ),
        (
            {"scale": torch.tensor(0.5)},
            ValueError,
            r"scale must have shape \[T\] = \[5\], got \[\]",
        ),
        ({"scale": torch.ones(2)}, ValueError, r"scale must have shape \[T\] = \[5\], got \[2\]"),
        (
            {"scale": torch.ones(T, dtype=torch.int64)},
            TypeError,
            r"scale must have the dtype of q \(torch\.float32\), got torch\.int64",
        ),
        (
            {"scale": torch.ones(T, device="meta")},
            ValueError,
            r"scale must be on the device of q \(cpu\), got meta",
        ),
        ({"scale": torch.ones(2 * T)[::2]}, ValueError, r"scale must have stride 1"),
        ({"alpha": torch.tensor(1.0)}, TypeError, r"alpha must be a Python number.*multiply q"),
        ({"alpha": "0.5"}, TypeError, r"alpha must be a Python number.*got str"),
        ({"scale": 1j}, TypeError, r"scale must be a number or a tensor \[T\], got complex"),
        ({"mask": "causal"}, TypeError, r"mask must be a jagged\.HSTUMask, got str"),
        ({"mask": None}, TypeError, r"mask must be a jagged\.HSTUMask, got NoneType"),
        ({"bias": torch.ones(5)}, TypeError, r"bias must be a jagged\.BucketedBias, got Tensor"),
        (
            {"num_targets": torch.ones(3, dtype=torch.int64)},
            ValueError,
            r"num_targets must have shape \[B\] = \[2\], got \[3\]",
        ),
        (
            {"num_targets": torch.ones(2)},
            TypeError,
            r"num_targets must be int32 or int64, got torch\.float32",
        ),
        (
            {"num_targets": torch.arange(4)[::2]},
            ValueError,
            r"num_targets must have stride 1 .* call num_targets\.contiguous\(\)",
        ),
        ({"num_targets": [1, 1]}, TypeError, r"num_targets must be a torch\.Tensor, got list"),
        (
            {"num_targets": torch.ones(2, dtype=torch.int64, device="meta")},
            ValueError,
            r"num_targets must be on the device of q \(cpu\), got meta",
        ),
    ],
)
def test_refused(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(**changes)


TIMES = torch.arange(T)


@pytest.mark.parametrize(
    ("bias", "error", "message"),
    [
        (
            BucketedBias(position_table=torch.ones(3)),
            ValueError,
            r"max_length must not exceed the N = 2 of position_table \[2 \* N - 1\], got 3",
        ),
        (
            BucketedBias(position_table=torch.ones(5).double()),
            TypeError,
            r"position_table must have the dtype of q \(torch\.float32\), got torch\.float64",
        ),
        (
            BucketedBias(position_table=torch.ones(5, device="meta")),
            ValueError,
            r"position_table must be on the device of q \(cpu\), got meta",
        ),
        (
            BucketedBias(position_table=torch.ones(10)[::2]),
            ValueError,
            r"position_table must have stride 1",
        ),
        (
            BucketedBias(time_table=torch.ones(3).half(), timestamps=TIMES),
            TypeError,
            r"time_table must have the dtype of q \(torch\.float32\), got torch\.float16",
        ),
        (
            BucketedBias(time_table=torch.ones(3), timestamps=TIMES[1:]),
            ValueError,
            r"timestamps must have shape \[T\] = \[5\], got \[4\]",
        ),
        (
            BucketedBias(time_table=torch.ones(3), timestamps=TIMES.int()),
            TypeError,
            r"timestamps must be int64, got torch\.int32",
        ),
        (
            BucketedBias(time_table=torch.ones(3), timestamps=torch.arange(2 * T)[::2]),
            ValueError,
            r"timestamps must have stride 1 .* call timestamps\.contiguous\(\)",
        ),
    ],
)
def test_a_refused_bias(bias: BucketedBias, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(bias=bias)


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({"bucket": "linear"}, ValueError, r'bucket must be "log" or "sqrt", got \'linear\''),
        ({"divisor": 0.0}, ValueError, r"divisor must be positive, got 0\.0"),
        ({"divisor": float("nan")}, ValueError, r"divisor must be positive, got nan"),
        (
            {"time_table": torch.ones(3)},
            ValueError,
            r"timestamps must be given with a time_table: \[T\] int64, got None",
        ),
        (
            {"time_table": torch.ones(0), "timestamps": TIMES},
            ValueError,
            r"time_table must have shape \[buckets \+ 1\], got \[0\]",
        ),
        (
            {"time_table": torch.ones(3, 1), "timestamps": TIMES},
            ValueError,
            r"time_table must have shape \[buckets \+ 1\], got \[3, 1\]",
        ),
        (
            {"position_table": torch.ones(4)},
            ValueError,
            r"position_table must have shape \[2 \* N - 1\].*got \[4\]",
        ),
        ({"position_table": [1.0]}, TypeError, r"position_table must be a torch\.Tensor, got list"),
        (
            {"time_table": [1.0], "timestamps": TIMES},
            TypeError,
            r"time_table must be a torch\.Tensor, got list",
        ),
    ],
)
def test_a_bias_that_cannot_be_made(
    parts: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        BucketedBias(**parts)


@pytest.mark.parametrize("name", ["scale", "position_table", "time_table"])
def test_what_is_less_exact_or_wider_than_q(name: str) -> None:
    """Nothing is promoted behind the caller's back but float32 beside 16 bits."""
    for own, other, message in (
        (torch.float64, torch.float32, r"q \(torch\.float64\), got torch\.float32: convert"),
        (torch.float16, torch.float64, r"q \(torch\.float16\) or float32, got torch\.float64"),
    ):
        x, given = torch.ones(T, H, D, dtype=own), torch.ones(T, dtype=other)
        changes: dict[str, Any] = {"scale": given}
        if name != "scale":
            changes = {"bias": BucketedBias(**{name: given}, timestamps=TIMES)}
        with pytest.raises(TypeError, match=f"{name} must have the dtype of {message}"):
            call(q=x, k=x, v=x, **changes)


def test_a_bias_of_nothing_is_no_bias() -> None:
    assert torch.equal(call(bias=BucketedBias(timestamps=TIMES[:2])), call())


def test_a_mask_by_default_is_causal() -> None:
    assert torch.equal(call(mask=HSTUMask()), call())
