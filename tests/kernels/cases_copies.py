from typing import Any

import torch

from jagged.tuning.configs import Config
from tests.kernels.cases import Case, Make

BLOCKS = {"large": Config({"block_sizes": [64, 32]}), "small": Config({"block_sizes": [8, 16]})}


def forms(*tables: str) -> dict[str, dict[str, Config]]:
    """Both block sizes for all of these tables."""
    return {label: dict.fromkeys(tables, config) for label, config in BLOCKS.items()}


def some(make: Make) -> int:
    """Cells a row: fewer than the longest row has elements."""
    return make.longest - make.longest // 3


def more(make: Make) -> int:
    """Cells a row: more than the longest row has elements."""
    return make.longest + 3


def values_and(*rest: Any) -> Any:
    """Arguments that begin with values [T, D] and offsets."""
    return lambda make: (
        make.values(make.width),
        make.offsets(),
        *(item(make) if callable(item) else item for item in rest),
    )


def dense_and(length: Any, *rest: Any) -> Any:
    """Arguments that begin with a dense [B, N, D] and offsets."""
    return lambda make: (
        make.per_row(length(make), make.width),
        make.offsets(),
        *(item(make) for item in rest),
    )


def total(make: Make) -> int:
    return make.total


SUMS = {
    "row": {"SUM": Config({"block_sizes": [32]}, "row", {"DEEP": 2, "BLOCK": 8})},
    "rows": {"SUM": Config({"block_sizes": [8, 32, 64]})},
}
CASES = [
    Case("to_padded", "forward", values_and(some, 1.5), forms("CELLS")),
    Case(
        "to_padded",
        "forward",
        lambda make: (
            make.dense(make.total, dtype=torch.int64),
            make.offsets(),
            more(make),
            -1.0,
        ),
        {"ids": {"CELLS": Config({"block_sizes": [64, 1]})}},
        label="ids",
    ),
    Case("to_padded", "backward", dense_and(some, total), forms("ELEMENTS")),
    Case("from_padded", "forward", dense_and(more, total), forms("ELEMENTS")),
    Case("from_padded", "backward", values_and(more), forms("CELLS")),
    Case(
        "dense_add",
        "forward",
        values_and(lambda make: make.per_row(some(make), make.width)),
        forms("FORWARD"),
    ),
    Case("dense_add", "backward", values_and(some, True, True), forms("ELEMENTS", "CELLS")),
    Case(
        "dense_add",
        "backward",
        values_and(some, True, False),
        {"values": {"ELEMENTS": BLOCKS["large"]}},
        label="values",
    ),
    Case(
        "padded_add",
        "forward",
        values_and(lambda make: make.per_row(some(make), make.width)),
        forms("FORWARD"),
    ),
    Case("padded_add", "backward", dense_and(some, total), {"all": {"ELEMENTS": BLOCKS["large"]}}),
    Case("row_add", "forward", values_and(lambda make: make.per_row(make.width)), forms("FORWARD")),
    Case("row_add", "backward", values_and(True, True), SUMS),
    Case(
        "row_add",
        "backward",
        values_and(True, False),
        {"values": {"ELEMENTS": BLOCKS["large"]}},
        label="values",
    ),
]
