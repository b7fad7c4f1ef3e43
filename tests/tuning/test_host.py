"""The folded host function launches what Helion's own does, with less work."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton  # used by the function below, as in generated files
from torch import Tensor

from jagged.tuning._host import Launch, Site, Strides, contiguous_strides, fold

KERNEL = object()


def generated(values: Tensor, dense: Tensor, steps: int, *, _launcher: Callable[..., None]) -> None:
    """As Helion writes it."""
    rows = dense.size(0)
    _BLOCK_SIZE_0 = 8
    _BLOCK_SIZE_1 = 32
    _RDIM_SIZE_2 = max(triton.next_power_of_2(_BLOCK_SIZE_1 + 1), 1)
    grid = (rows + _BLOCK_SIZE_0 - 1) // _BLOCK_SIZE_0 * ((64 + _BLOCK_SIZE_1 - 1) // _BLOCK_SIZE_1)
    _launcher(
        KERNEL, (grid,), values, dense, values.stride(0), values.stride(1), dense.stride(0),
        dense.stride(1), rows, steps, _RDIM_SIZE_2, num_warps=4,
    )  # fmt: skip


Launches = list[tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]]]


def launched(function: Callable[..., None], *args: Any) -> Launches:
    """What Helion's own function launches."""
    seen: Launches = []

    def launcher(kernel: Any, grid: tuple[int, ...], *given: Any, **options: Any) -> None:
        seen.append((kernel, grid, given, options))

    function(*args, _launcher=launcher)
    return seen


class Folded:
    """A folded function that keeps what it launches."""

    def __init__(self, function: Callable[..., None], strides: Strides) -> None:
        self.sites: list[Site] = []
        self._seen: Launches = []
        self.function = fold(function, strides, self._launcher)

    def launched(self, *args: Any) -> Launches:
        self._seen.clear()
        self.function(*args)
        return self._seen.copy()

    def _launcher(self, site: Site, replace: Callable[[Launch], None]) -> Launch:
        self.sites.append(site)

        def later(*given: Any) -> None:
            changing = iter(given[site.dimensions :])
            args = tuple(next(changing) if one is None else eval(one) for one in site.args)
            self._seen.append((site.kernel, given[: site.dimensions], args, site.options))

        def first(*given: Any) -> None:
            replace(later)
            later(*given)

        return first


def known(values: Tensor, dense: Tensor) -> dict[tuple[str, int], int]:
    shapes = {"values": tuple(values.shape), "dense": tuple(dense.shape)}
    return contiguous_strides(shapes, {"values": 1, "dense": 2})


def ask_for_strides(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the tensors whose strides are asked for from now on."""
    asked = []
    stride = Tensor.stride

    def ask(tensor: Tensor, *dims: int) -> Any:
        asked.append(tuple(tensor.shape))
        return stride(tensor, *dims)

    monkeypatch.setattr(Tensor, "stride", ask)
    return asked


def test_equals_the_function_at_any_size() -> None:
    first = torch.empty(5, 64), torch.empty(3, 7, 64)
    folded = Folded(generated, known(*first))
    for total, rows, length in ((5, 3, 7), (900, 1, 1), (1, 77, 12)):
        args = torch.empty(total, 64), torch.empty(rows, length, 64), total
        assert folded.launched(*args) == launched(generated, *args)


def test_constants_and_known_strides_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = torch.empty(5, 64), torch.empty(3, 7, 64)
    folded = Folded(generated, known(*first))
    assert "next_power_of_2" not in folded.function.__code__.co_names
    # All but the tensors, a stride that the length of `dense` decides, and two sizes.
    assert folded.sites[0].args == (None, None, "64", "1", None, "64", None, None, "64")
    asked = ask_for_strides(monkeypatch)
    folded.launched(*first, 1)
    assert asked == [(3, 7, 64)]  # of `dense`


def test_strides_that_are_not_known_are_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    folded = Folded(generated, {})
    args = torch.empty(9, 128)[:, ::2], torch.empty(7, 3, 64).transpose(0, 1), 4
    assert folded.launched(*args) == launched(generated, *args)
    assert not {"size", "next_power_of_2"} & set(folded.function.__code__.co_names)
    asked = ask_for_strides(monkeypatch)
    folded.launched(*args)
    assert sorted(asked) == [(3, 7, 64), (9, 64)]


def twice(values: Tensor, *, _launcher: Callable[..., None]) -> None:
    """Nothing that Helion writes: names that change."""
    size = 2
    _launcher(KERNEL, (size,), values.stride(0))
    size = 3
    values = values.t()
    _launcher(KERNEL, (size, 1), values.stride(0))


def test_a_name_with_two_values_stays() -> None:
    values = torch.empty(4, 8)
    folded = Folded(twice, {("values", 0): 8, ("values", 1): 1})
    assert len(folded.sites) == 2
    for _ in range(2):
        assert folded.launched(values) == launched(twice, values)


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
