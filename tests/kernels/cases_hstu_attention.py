from typing import Any

import torch
from torch import Tensor

from jagged.tuning.configs import Config
from tests.kernels.cases import Case, Make

SMALL = Config({"num_warps": 4}, constants={"BLOCK_Q": 16, "BLOCK_K": 16})
LARGE = Config({"num_warps": 4}, "direct", {"BLOCK_Q": 32, "BLOCK_K": 32})


def operands(make: Make, *, extras: bool) -> tuple[Any, ...]:
    """The arguments that forward and backward share; extras: every feature at once."""
    q, k = (make.values(heads(make), make.width) for _ in range(2))
    v = make.values(heads(make), values_width(make))
    longest = make.longest
    common = q, k, v, make.offsets(), longest, 0.25
    if not extras:
        return (*common, None, 0.3, 0, 0, 0, None, None, None, None, "log", 0.301)
    stamps = make.dense(make.total, dtype=torch.int64) * 100
    return (
        *common,
        make.values(),
        0.3,
        6,
        3,
        4,
        make.dense(make.rows, dtype=torch.int64),  # negative ones are clamped
        make.dense(2 * max(longest, 1) - 1, dtype=torch.float32),
        make.dense(8, dtype=torch.float32),
        stamps,
        "sqrt",
        1.5,
    )


def heads(make: Make) -> int:
    """H: one for the interpreter, whose time it multiplies; several where code is compiled."""
    return 1 if make.width <= 32 else 4


def values_width(make: Make) -> int:
    """V: another width than D, where that does not change the configuration."""
    return make.width if make.width > 32 else 16


def forward(extras: bool) -> Any:
    return lambda make: operands(make, extras=extras)


def backward(extras: bool, *needs: bool) -> Any:
    def arguments(make: Make) -> tuple[Any, ...]:
        grad: Tensor = make.values(heads(make), values_width(make))
        return (grad, *operands(make, extras=extras), *needs)

    return arguments


GRADIENTS = {"DQ": SMALL, "DKV": SMALL}
CASES = [
    Case(
        "hstu_attention",
        "forward",
        forward(False),
        {"list": {"FORWARD": SMALL}},
        product=True,
        spills=frozenset({"FORWARD-(4, 128, 256)"}),  # 8 bytes; larger blocks spill more
    ),
    Case(
        "hstu_attention",
        "forward",
        forward(True),
        {"direct": {"FORWARD_BIASED": LARGE}},
        label="extras",
        product=True,
    ),
    Case(
        "hstu_attention",
        "backward",
        backward(False, True, True, False),
        {"list": GRADIENTS},
        product=True,
        tolerance=16,
        spills=frozenset({"DKV-(2, 256, 1024)"}),  # what has wgmma at this width spills
    ),
    Case(
        "hstu_attention",
        "backward",
        backward(True, True, True, True),
        {"direct": {"DQ_BIASED": LARGE, "DKV_BIASED": LARGE, "DBIAS": LARGE}},
        label="extras",
        product=True,
        tolerance=16,
        spills=frozenset({"DBIAS-(2, 128, 256)"}),  # 16 bytes, with every feature at once
    ),
]
