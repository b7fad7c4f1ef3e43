from typing import Any

from jagged.tuning.configs import Config
from tests.kernels.cases import Case, Make

TIMES_MATRICES = {
    "whole": {"TIMES_MATRICES": Config({"block_sizes": [32, 16]}, "whole")},
    "turned": {"TIMES_MATRICES": Config({"block_sizes": [32, 16]}, "turned")},
    "tiled": {"TIMES_MATRICES": Config({"block_sizes": [16, 64, 16]})},
}
TRANSPOSED = {"TRANSPOSED": Config({"block_sizes": [32, 16, 16]})}
BOTH = {"both": {"BOTH": Config({"block_sizes": [16]})}}


def other(make: Make) -> int:
    """A second width, another one where that does not change the configuration."""
    return make.width + 8 if make.width < 64 else make.width


def half(make: Make) -> int:
    """Rows are cut there."""
    return make.longest // 2


def dense_bmm(bias: bool, limit: Any) -> Any:
    return lambda make: (
        make.values(make.width),
        make.offsets(),
        make.per_row(make.width, other(make)),
        make.per_row(other(make)) if bias else None,
        limit(make),
    )


def dense_bmm_backward(bias: bool, limit: Any, values: bool, dense: bool) -> Any:
    return lambda make: (
        make.values(other(make)),
        make.values(make.width),
        make.offsets(),
        make.per_row(make.width, other(make)),
        bias,
        limit(make),
        values,
        dense,
    )


def jagged_bmm_backward(need_x: bool) -> Any:
    return lambda make: (
        make.per_row(make.width, other(make)),
        make.values(make.width),
        make.values(other(make)),
        make.offsets(),
        half(make),
        need_x,
        True,
    )


def none(make: Make) -> None:
    return None


CASES = [
    Case("dense_bmm", "forward", dense_bmm(True, none), TIMES_MATRICES, product=True),
    Case(
        "dense_bmm",
        "forward",
        dense_bmm(False, half),
        {"whole": TIMES_MATRICES["whole"]},
        label="cut",
        product=True,
    ),
    Case(
        "dense_bmm",
        "backward",
        dense_bmm_backward(True, half, True, True),
        BOTH,
        widths=(24, 25, 64, 72),
        product=True,
    ),
    Case(
        "dense_bmm",
        "backward",
        dense_bmm_backward(True, none, False, False),
        {"all": TRANSPOSED},
        label="bias",
    ),
    Case(
        "jagged_bmm",
        "forward",
        lambda make: (make.values(make.width), make.values(other(make)), make.offsets(), None),
        {"all": TRANSPOSED},
        product=True,
    ),
    Case(
        "jagged_bmm",
        "backward",
        jagged_bmm_backward(True),
        BOTH,
        widths=(24, 25, 16, 72),
        product=True,
    ),
    Case(
        "jagged_bmm",
        "backward",
        jagged_bmm_backward(False),
        {"whole": TIMES_MATRICES["whole"]},
        label="one",
        product=True,
    ),
]
