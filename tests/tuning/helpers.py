"""Tables to test with: those of the kernels, and one of a kernel that does not exist."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jagged
from jagged.tuning import tables
from jagged.tuning.configs import ConfigTable


def _tables() -> list[ConfigTable]:
    found = {
        repr(value): value
        for op in jagged.ops.__all__
        for value in vars(importlib.import_module(f"jagged.kernels.{op}")).values()
        if isinstance(value, ConfigTable)
    }
    return [found[name] for name in sorted(found)]


ALL_TABLES = _tables()


def ship(folder: Path, warps: int, capability: tuple[int, int]) -> Path:
    """A table of `made_up.py` with one config."""
    config: Mapping[str, Any] = {"block_sizes": [8], "num_warps": warps}
    return tables.write(folder, "made_up", capability, {"kernel": {(2, 1, 1): dict(config)}})
