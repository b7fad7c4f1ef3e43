"""Which configuration a kernel runs with: a lookup in the tables that ship beside the kernels.

A table is a Python literal, `{capability: {(itemsize, width, length): entry}}`:

- capability: the GPU's compute capability, (9, 0) for the H200. A GPU without entries of its own
  gets those of the nearest older capability, else the oldest there is.
- itemsize: bytes an element (bfloat16 and float16 share an entry).
- width: features of an element (the product of the trailing dimensions).
- length: mean row length, T / B, both known on the host: no lookup waits for the device.
- entry: `settings` for Helion (`block_sizes`, `num_warps`, ...), and, where a kernel file asks for
  them, `form` (which of several kernels) and `constants` (values of its constexpr arguments).

Widths and lengths between two entries use the nearest on a logarithmic scale.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

Entry = Mapping[str, Any]
Point = tuple[int, int, int]  # itemsize, width, length
Table = Mapping[tuple[int, int], Mapping[Point, Entry]]


class Config:
    """One way to run a kernel. Compared by identity: it is part of a launcher's key."""

    __slots__ = ("constants", "form", "settings")

    def __init__(
        self,
        settings: Mapping[str, Any],
        form: str = "",
        constants: Mapping[str, int] | None = None,
    ) -> None:
        self.settings = dict(settings)
        self.form = form
        self.constants = dict(constants or {})

    def __repr__(self) -> str:
        return f"Config({self.settings}, form={self.form!r}, constants={self.constants})"


class ConfigTable:
    """The entries of one kernel and direction; `pick` costs about half a microsecond."""

    def __init__(self, table: Table) -> None:
        self._configs: dict[tuple[int, int], dict[Point, Config]] = {
            capability: {point: Config(**entry) for point, entry in entries.items()}
            for capability, entries in table.items()
        }
        # Grows with the powers of two of width and length, so by a few hundred at most.
        self._picked: dict[tuple[torch.device, int, int, int], Config] = {}

    def pick(self, values: Tensor, width: int, rows: int) -> Config:
        """The configuration for `values` [T, ...] of `width` features in `rows` rows."""
        bits = (values.shape[0] // rows).bit_length() if rows else 0
        key = (values.device, values.element_size(), width.bit_length(), bits)
        config = self._picked.get(key)
        if config is None:
            point = (key[1], width, 1 << bits >> 1)
            config = self._picked[key] = self.nearest(_capability(values.device), point)
        return config

    def nearest(self, capability: tuple[int, int], point: Point) -> Config:
        """The entry nearest to `point` of the nearest capability that is not newer."""
        older = [known for known in self._configs if known <= capability]
        entries = self._configs[max(older) if older else min(self._configs)]
        return entries[min(entries, key=lambda known: _distance(known, point))]

    def all(self) -> dict[tuple[tuple[int, int], Point], Config]:
        """Every shipped configuration, for the tests that compile them all."""
        return {
            (capability, point): config
            for capability, entries in self._configs.items()
            for point, config in entries.items()
        }


def _capability(device: torch.device) -> tuple[int, int]:
    """Compute capability of a CUDA device; the oldest entries serve Triton's interpreter on CPU."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)


def _distance(known: Point, point: Point) -> tuple[int, int]:
    """How far an entry is: the item size first, then the steps of two in width and length."""
    return (
        abs(known[0].bit_length() - point[0].bit_length()),
        abs(known[1].bit_length() - point[1].bit_length())
        + abs(known[2].bit_length() - point[2].bit_length()),
    )
