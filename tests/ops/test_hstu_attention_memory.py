"""What hstu_attention needs on the CPU beside its inputs and outputs, and what it multiplies."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from jagged.eager import hstu_attention as eager

MEGABYTE = 2**20
BATCHES = {
    "short rows": [1, 9, 50, 0, 3, 17, 2, 5] * 3000,
    "rows of 500": [500] * 150,
    "a long row": [5000],
    "one long row and many short ones": [3000] + [9] * 20000,
}


def flat(
    lengths: list[int], heads: int, features: int, **changes: Any
) -> tuple[list[Tensor], tuple[Any, ...]]:
    """q, k, v and the arguments of the flat op that follow them."""
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    generator = torch.Generator().manual_seed(0)
    shape = (sum(lengths), heads, features)
    qkv = [torch.randn(shape, generator=generator) for _ in range(3)]
    given = {
        "offsets": offsets,
        "max_length": max(lengths),
        "scale": 0.01,
        "scale_per_query": None,
        "alpha": 1.0,
        "window": 0,
        "contextual": 0,
        "min_full": 0,
        "num_targets": None,
        "position_table": None,
        "time_table": None,
        "timestamps": None,
        "bucket": "log",
        "divisor": 0.301,
    } | changes
    return qkv, tuple(given.values())


def peak_bytes(call: Callable[[], object]) -> int:
    """The most memory that a call holds at once, what it returns included."""
    with torch.profiler.profile(profile_memory=True, record_shapes=False) as profile:
        result = call()
    assert result is not None
    held = peak = 0
    for event in profile.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def test_the_measure_itself() -> None:
    def call() -> Tensor:
        first = torch.ones(MEGABYTE)
        second = first + 1
        del first
        return second + 1

    assert 8 * MEGABYTE <= peak_bytes(call) < 9 * MEGABYTE


@pytest.mark.unpoisoned
@pytest.mark.parametrize("batch", BATCHES)
def test_temporaries_are_small(batch: str) -> None:
    """256 MB is the promise; the scores of all rows, padded, would be several times that."""
    heads, features = 2, 16
    lengths = BATCHES[batch]
    total = sum(lengths)
    table = torch.randn(2 * max(lengths) - 1)
    times = torch.randn(129)
    qkv, arguments = flat(
        lengths,
        heads,
        features,
        position_table=table,
        time_table=times,
        timestamps=torch.arange(total),
    )
    value_bytes = total * heads * features * 4
    forward = peak_bytes(lambda: eager.forward(*qkv, *arguments)) - value_bytes
    assert forward < 100 * MEGABYTE
    grad = torch.randn_like(qkv[0])
    backward = peak_bytes(lambda: eager.backward(grad, *qkv, *arguments, True, True, True))
    assert backward - 3 * value_bytes < 140 * MEGABYTE


class Multiplied(TorchDispatchMode):
    """Counts the multiplications in matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._opname.rstrip("_") in ("mm", "addmm", "bmm", "baddbmm"):
            left, right = args[-2:]
            self.count += left.shape[:-1].numel() * left.shape[-1] * right.shape[-1]
        return func(*args, **(kwargs or {}))


def products(lengths: list[int], **changes: Any) -> tuple[int, int]:
    """Multiplications of forward and backward, in units of one feature and one head."""
    qkv, arguments = flat(lengths, 2, 4, **changes)
    with Multiplied() as forward:
        eager.forward(*qkv, *arguments)
    with Multiplied() as backward:
        eager.backward(qkv[0], *qkv, *arguments, True, True, False)
    return forward.count // 8, backward.count // 8


def test_masked_pairs_of_long_rows_are_not_multiplied() -> None:
    n, w = 1500, 100
    causal = n * n // 2
    forward, backward = products([n])
    assert forward < 1.15 * 2 * causal
    assert backward < 1.15 * 5 * causal
    forward, backward = products([n], window=w)
    assert forward < 2 * n * (w + 2 * 128)
    assert backward < 5 * n * (w + 2 * 128)
    history = 500
    targets = torch.tensor([n - history])
    forward, backward = products([n], num_targets=targets)
    seen = history * history // 2 + (n - history) * (history + 128)
    assert forward < 1.15 * 2 * seen
    assert backward < 1.15 * 5 * seen


def test_short_rows_are_not_padded_to_the_longest() -> None:
    lengths = [1000] + [9] * 1000
    forward, _ = products(lengths)
    assert forward < 2 * (1.15 * 1000 * 1000 // 2 + 1000 * 16 * 16)


def test_rows_share_their_products() -> None:
    """A row does not cost a call of its own."""

    class Calls(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.count += 1
            return func(*args, **(kwargs or {}))

    counts = []
    for times in (1, 200):
        qkv, arguments = flat([5, 9, 20, 0, 31] * times, 2, 4)
        with Calls() as calls:
            eager.forward(*qkv, *arguments)
        counts.append(calls.count)
    assert counts[1] == counts[0]
