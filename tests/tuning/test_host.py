"""The folded host function launches what Helion's own does, with less work."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton  # used by the function below, as in generated files
from torch import Tensor

from jagged.tuning._host import contiguous_strides, fold


def generated(values: Tensor, dense: Tensor, steps: int, *, _launcher: Callable[..., None]) -> None:
    """As Helion writes it."""
    rows = dense.size(0)
    _BLOCK_SIZE_0 = 8
    _BLOCK_SIZE_1 = 32
    _RDIM_SIZE_2 = max(triton.next_power_of_2(_BLOCK_SIZE_1 + 1), 1)
    grid = (rows + _BLOCK_SIZE_0 - 1) // _BLOCK_SIZE_0 * ((64 + _BLOCK_SIZE_1 - 1) // _BLOCK_SIZE_1)
    strides = values.stride(0), values.stride(1), dense.stride(0), dense.stride(1)
    _launcher("kernel", (grid,), values, dense, *strides, rows, steps, _RDIM_SIZE_2, num_warps=4)


def launched(function: Callable[..., None], *args: Any) -> list[Any]:
    seen: list[Any] = []
    function(*args, _launcher=lambda *launch, **options: seen.append((launch, options)))
    return seen


def known(values: Tensor, dense: Tensor) -> dict[tuple[str, int], int]:
    shapes = {"values": tuple(values.shape), "dense": tuple(dense.shape)}
    return contiguous_strides(shapes, {"values": 1, "dense": 2})


def test_equals_the_function_at_any_size() -> None:
    first = torch.empty(5, 64), torch.empty(3, 7, 64)
    folded = fold(generated, known(*first))
    for total, rows, length in ((5, 3, 7), (900, 1, 1), (1, 77, 12)):
        args = torch.empty(total, 64), torch.empty(rows, length, 64), total
        assert launched(folded, *args) == launched(generated, *args)


def test_constants_and_known_strides_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = torch.empty(5, 64), torch.empty(3, 7, 64)
    folded = fold(generated, known(*first))
    assert "next_power_of_2" not in folded.__code__.co_names
    asked: list[int] = []
    step = Tensor.stride

    def ask(tensor: Tensor, dim: int) -> int:
        asked.append(dim)
        return step(tensor, dim)

    monkeypatch.setattr(Tensor, "stride", ask)
    launched(folded, *first, 1)
    assert asked == [0]  # of `dense`, which its length decides


def twice(values: Tensor, *, _launcher: Callable[..., None]) -> None:
    """Nothing that Helion writes: names that change."""
    size = 2
    _launcher("first", (size,), values.stride(0))
    size = 3
    values = values.t()
    _launcher("second", (size,), values.stride(0))


def test_a_name_with_two_values_stays() -> None:
    values = torch.empty(4, 8)
    folded = fold(twice, {("values", 0): 8, ("values", 1): 1})
    assert launched(folded, values) == launched(twice, values)


def test_strides_that_a_shape_decides() -> None:
    shapes = {"one": (9,), "two": (9, 64), "three": (3, 7, 64), "none": (9, 0)}
    dynamic = {"one": 1, "two": 1, "three": 2, "none": 1}
    assert contiguous_strides(shapes, dynamic) == {
        ("one", 0): 1,
        ("two", 1): 1,
        ("two", 0): 64,
        ("three", 2): 1,
        ("three", 1): 64,
        ("none", 1): 1,
        ("none", 0): 1,
    }
    for name in ("one", "two", "three"):
        tensor = torch.empty(shapes[name])
        for dim in range(dynamic[name] - 1, tensor.ndim):
            assert tensor.stride(dim) == contiguous_strides(shapes, dynamic)[name, dim]
