"""Tensors inside poisoned buffers, so that a kernel that strays is caught.

The interpreter works on real addresses: a read outside a tensor gives whatever lies there, a write
changes it. Here NaN lies there, and `check()` sees each change.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from jagged.tuning.configs import Config
from jagged.tuning.launch import Launchable

GUARD = 256  # elements on either side; blocks that overhang by more are caught as wrong results
INTEGER_POISON = 113


def poison(dtype: torch.dtype) -> float | int | bool:
    """What fills memory that nobody may use."""
    if dtype == torch.bool:
        return True
    return float("nan") if dtype.is_floating_point else INTEGER_POISON


class Guarded:
    """Makes guarded tensors and remembers them."""

    def __init__(self) -> None:
        self._inputs: list[tuple[Tensor, Tensor]] = []  # the whole buffer, and a copy of it
        self._outputs: list[tuple[Tensor, int]] = []  # the whole buffer, elements of the output

    def input(self, data: Tensor, gap: int = 0) -> Tensor:
        """A copy of `data` in a poisoned buffer, `gap` poisoned elements after each row."""
        step = data[0].numel() + gap if data.ndim and data.shape[0] else gap
        buffer = _filled(2 * GUARD + data.shape[0] * step, data.dtype)
        inner = torch.empty(data.shape[1:], device="meta").stride()
        view = buffer.as_strided(data.shape, (step, *inner), GUARD)
        view.copy_(data)
        self._inputs.append((buffer, buffer.clone()))
        return view

    def output(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A poisoned tensor in a poisoned buffer."""
        count = torch.Size(shape).numel()
        buffer = _filled(2 * GUARD + count, dtype)
        self._outputs.append((buffer, count))
        return buffer[GUARD : GUARD + count].view(shape)

    def check(self) -> None:
        """Inputs are what they were, nothing lies around the outputs."""
        for buffer, before in self._inputs:
            torch.testing.assert_close(buffer, before, rtol=0, atol=0, equal_nan=True)
        for buffer, count in self._outputs:
            around = torch.cat([buffer[:GUARD], buffer[GUARD + count :]])
            expected = _filled(around.numel(), buffer.dtype)
            torch.testing.assert_close(around, expected, rtol=0, atol=0, equal_nan=True)

    @contextmanager
    def allocations(self) -> Iterator[None]:
        """`torch.empty` and its relatives give guarded outputs inside, but not to Helion itself."""
        real = torch.empty, torch.empty_like, torch.Tensor.new_empty, Launchable.__call__
        launching = False

        def empty(*size: Any, **options: Any) -> Tensor:
            if launching:
                return real[0](*size, **options)
            shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
            return self.output(tuple(shape), options.get("dtype") or torch.get_default_dtype())

        def empty_like(other: Tensor, **options: Any) -> Tensor:
            if launching:
                return real[1](other, **options)
            return self.output(tuple(other.shape), options.get("dtype") or other.dtype)

        def new_empty(tensor: Tensor, *size: Any, **options: Any) -> Tensor:
            if launching:
                return real[2](tensor, *size, **options)
            return empty(*size, **{"dtype": tensor.dtype, **options})

        def launch(kernel: Launchable, config: Config, *args: Any) -> None:
            nonlocal launching
            launching = True
            real[3](kernel, config, *args)
            launching = False

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "empty", empty)
            patch.setattr(torch, "empty_like", empty_like)
            patch.setattr(torch.Tensor, "new_empty", new_empty)
            patch.setattr(Launchable, "__call__", launch)
            yield


def _filled(count: int, dtype: torch.dtype) -> Tensor:
    return torch.full((count,), poison(dtype), dtype=dtype)
