"""Calls of the kernels that have nothing to compute: no launch, and what the eager ops give.

On the CPU, where a launch would fail: no rows, no elements, no features, no cells.
"""

import importlib
from typing import Any

import pytest
import torch
from torch import Tensor

from jagged.tuning.launch import Launchable


def ones(*shape: int) -> Tensor:
    return torch.ones(shape)


def offsets(rows: int, total: int) -> Tensor:
    """All elements in the last row, if there is one."""
    made = torch.zeros(rows + 1, dtype=torch.int64)
    if rows:
        made[-1] = total
    return made


def copies(rows: int, total: int, cells: int, width: int) -> list[tuple[str, str, tuple[Any, ...]]]:
    jagged, padded = ones(total, width), ones(rows, cells, width)
    bounds = offsets(rows, total)
    return [
        ("to_padded", "forward", (jagged, bounds, cells, 1.5)),
        ("to_padded", "backward", (padded, bounds, total)),
        ("from_padded", "forward", (padded, bounds, total)),
        ("from_padded", "backward", (jagged, bounds, cells)),
        ("padded_add", "forward", (jagged, bounds, padded)),
        ("padded_add", "backward", (padded, bounds, total)),
    ]


def sums(rows: int, total: int, cells: int, width: int) -> list[tuple[str, str, tuple[Any, ...]]]:
    jagged, padded = ones(total, width), ones(rows, cells, width)
    bounds = offsets(rows, total)
    return [
        ("dense_add", "forward", (jagged, bounds, padded)),
        ("dense_add", "backward", (jagged, bounds, cells, True, True)),
        ("dense_add", "backward", (jagged, bounds, cells, True, False)),
        ("dense_add", "backward", (jagged, bounds, cells, False, True)),
        ("dense_add", "backward", (jagged, bounds, cells, False, False)),
        ("row_add", "forward", (jagged, bounds, ones(rows, width))),
    ]


def products(rows: int, total: int, width: int) -> list[tuple[str, str, tuple[Any, ...]]]:
    x, y, bounds = ones(total, width), ones(total, 3), offsets(rows, total)
    matrix = ones(rows, width, 3)
    return [
        ("dense_bmm", "forward", (x, bounds, matrix, ones(rows, 3), None)),
        ("dense_bmm", "backward", (y, x, bounds, matrix, True, 7, True, True)),
        ("dense_bmm", "backward", (y, x, bounds, matrix, True, 7, False, True)),
        ("dense_bmm", "backward", (y, x, bounds, matrix, True, 7, False, False)),
        ("jagged_bmm", "forward", (x, y, bounds, None)),
        ("jagged_bmm", "backward", (matrix, x, y, bounds, None, True, True)),
    ]


def gates(total: int, width: int) -> list[tuple[str, str, tuple[Any, ...]]]:
    x, weight, moments = ones(total, width), ones(width), torch.zeros(total, 1)
    options = True, True, 0.0, None, None
    return [
        ("norm_mul_dropout", "forward", (x, x, weight, None, 0.1, *options)),
        (
            "norm_mul_dropout",
            "backward",
            (ones(total, 3 * width), x, x, moments, moments, weight, weight, True, *options),
        ),
        (
            "norm_mul_dropout",
            "backward",
            (ones(total, 3 * width), x, x, moments, moments, None, None, False, *options),
        ),
    ]


def norms(total: int, width: int) -> list[tuple[str, str, tuple[Any, ...]]]:
    x, weight, moments, bounds = (
        ones(total, width),
        ones(width),
        torch.zeros(total),
        offsets(1, total),
    )
    return [
        (op, "backward", (x, x, *before, saved, saved, *parameters, *after))
        for op, before, saved, after in (
            ("layer_norm", (bounds,), torch.zeros(1), ()),
            ("token_layer_norm", (), moments, (None,)),
        )
        for parameters in ((weight, True), (weight, False), (None, True), (None, False))
    ]


CALLS = {
    "no rows": copies(0, 0, 2, 4) + sums(0, 0, 2, 4) + products(0, 0, 4),
    "no rows, a tail": copies(0, 3, 2, 4) + products(0, 3, 4),
    "no elements": copies(2, 0, 2, 4)
    + sums(2, 0, 2, 4)
    + products(2, 0, 4)
    + gates(0, 4)
    + norms(0, 4),
    "no cells": copies(2, 3, 0, 4),
    "no features": copies(2, 3, 2, 0) + sums(2, 3, 2, 0) + gates(3, 0) + norms(3, 0),
}


@pytest.mark.parametrize(
    ("op", "direction", "arguments"),
    [
        pytest.param(*call, id=f"{name}-{call[0]}-{call[1]}-{index}")
        for name, calls in CALLS.items()
        for index, call in enumerate(calls)
    ],
)
def test_equals_eager_without_a_launch(
    op: str, direction: str, arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(kernel: Launchable, *_: Any) -> None:
        pytest.fail(f"{kernel.function.__name__} was launched")

    monkeypatch.setattr(Launchable, "__call__", launch)
    kernels, eager = (
        importlib.import_module(f"jagged.{kind}.{op}") for kind in ("kernels", "eager")
    )
    ours, expected = (getattr(module, direction)(*arguments) for module in (kernels, eager))
    pairs = zip(ours, expected, strict=True) if isinstance(ours, tuple) else [(ours, expected)]
    if isinstance(ours, tuple):
        assert len({id(our) for our in ours}) == len(ours), "a tensor is returned twice"
    for our, answer in pairs:
        assert our.shape == answer.shape
        torch.testing.assert_close(our, answer, rtol=0, atol=0)


@pytest.mark.parametrize("widths", [(257, 8), (8, 257)], ids=["D", "V"])
def test_heads_too_wide_for_shared_memory_are_refused(widths: tuple[int, int]) -> None:
    q, v = (ones(3, 1, width) for width in widths)
    module = importlib.import_module("jagged.kernels.hstu_attention")
    rest = (offsets(1, 3), 3, 1.0, None, 1.0, 0, 0, 0, None, None, None, None, "", 1.0)
    with pytest.raises(ValueError, match="at most 256 features a head, got 257: use more heads"):
        module.forward(q, q, v, *rest)
    with pytest.raises(ValueError, match="at most 256 features a head, got 257: use more heads"):
        module.backward(v, q, q, v, *rest, True, True, False)
