from typing import Any

import torch
from torch import Tensor

from jagged.tuning.configs import Config
from tests.kernels.cases import Case, Make

SMALL = Config({"num_warps": 4}, constants={"BLOCK_Q": 16, "BLOCK_K": 16})
LARGE = Config({"num_warps": 4}, "direct", {"BLOCK_Q": 32, "BLOCK_K": 32})
TALL = Config({"num_warps": 4}, "direct", {"BLOCK_Q": 32, "BLOCK_K": 16})
HELD = Config({"num_warps": 4}, constants={"BLOCK_Q": 16, "BLOCK_K": 32, "HELD": 1})
SHORT = Config(
    {"num_warps": 4},
    "short",
    {"WIDTH": 16, "BYTES": 4, "LONGEST": 64, "ROWS": 1, "BLOCK": 16, "BLOCK_Q": 16, "BLOCK_K": 16},
)
SHORT_ROWS = 256  # as many as the shipped entries ask for
SEARCH, DIRECT = 4, 10  # elements cut off the longest row, and how the others are found then


def operands(make: Make, *, masked: bool, biased: bool) -> tuple[Any, ...]:
    """The arguments that forward and backward share; masked: every feature but a bias."""
    q, k = (make.values(heads(make), make.width) for _ in range(2))
    v = make.values(heads(make), values_width(make))
    longest = make.longest
    mask: tuple[Any, ...] = None, 0.3, 0, 0, 0, None
    if masked:
        targets = make.dense(make.rows, dtype=torch.int64)  # negative ones are clamped
        mask = make.values(), 0.3, 6, 3, 4, targets
    bias: tuple[Any, ...] = None, None, None, "log", 0.301
    if biased:
        positions = make.dense(2 * max(longest, 1) - 1, dtype=torch.float32)
        times = make.dense(8, dtype=torch.float32)
        bias = positions, times, make.dense(make.total, dtype=torch.int64) * 100, "sqrt", 1.5
    return (q, k, v, make.offsets(), longest, 0.25, *mask, *bias)


def short_values(make: Make, cut: int, *trailing: int) -> Tensor:
    """[T, *trailing]; where code is compiled, so many that no row is searched for but with SEARCH.

    Where it is interpreted, `cut` alone decides.
    """
    if make.width <= 32 or cut == SEARCH:
        return make.values(*trailing)
    return make.dense(SHORT_ROWS * make.longest // 2, *trailing)


def short_operands(make: Make, cut: int) -> tuple[Any, ...]:
    """The same for batches of short rows; with rows cut at max_length, all features but a bias."""
    q, k, v = (short_values(make, cut, heads(make), make.width) for _ in range(3))
    many = make.width > 32  # compiled, never run
    offsets = make.dense(SHORT_ROWS + 1, dtype=torch.int64) if many else make.offsets()
    longest, factors = make.longest, None
    mask: tuple[Any, ...] = 0, 0, 0, None
    if cut:
        longest, factors = max(longest - cut, 0), short_values(make, cut)
        mask = 6, 3, 4, make.dense(offsets.shape[0] - 1, dtype=torch.int64)
    return (q, k, v, offsets, longest, 0.25, factors, 0.3, *mask, None, None, None, "log", 1.0)


def heads(make: Make) -> int:
    """H: one for the interpreter, whose time it multiplies; several where code is compiled."""
    return 1 if make.width <= 32 else 4


def values_width(make: Make) -> int:
    """V: another width than D, where that does not change the configuration."""
    return make.width if make.width > 32 else 16


def forward(extras: bool) -> Any:
    return lambda make: operands(make, masked=extras, biased=extras)


def short_forward(cut: int) -> Any:
    return lambda make: short_operands(make, cut)


def short_backward(cut: int) -> Any:
    def arguments(make: Make) -> tuple[Any, ...]:
        grad = short_values(make, cut, heads(make), make.width)
        return (grad, *short_operands(make, cut), True, True, False)

    return arguments


def backward(extras: bool, *needs: bool) -> Any:
    def arguments(make: Make) -> tuple[Any, ...]:
        grad: Tensor = make.values(heads(make), values_width(make))
        return (grad, *operands(make, masked=extras, biased=extras), *needs)

    return arguments


GRADIENTS = {"DQ": SMALL, "DKV": SMALL}
CASES = [
    Case(
        "hstu_attention",
        "forward",
        forward(False),
        {"list": {"FORWARD": SMALL}, "held": {"FORWARD": HELD}},
        product=True,
        # All spills here and below: measured faster than what does not.
        spills=frozenset({"FORWARD-(2, 128, 16384)", "FORWARD-(4, 128, 256)"}),
    ),
    Case(
        "hstu_attention",
        "forward",
        lambda make: operands(make, masked=True, biased=False),
        {"direct": {"FORWARD_MASKED": LARGE}},
        label="masked",
        product=True,
        spills=frozenset({"FORWARD_MASKED-(4, 128, 256)", "FORWARD_MASKED-(4, 64, 256)"}),
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
        spills=frozenset(
            {"DQ-(4, 128, 256)"}
            | {f"DKV-{point}" for point in ((2, 256, 16384), (4, 256, 256), (4, 64, 256))}
        ),
    ),
    Case(
        "hstu_attention",
        "backward",
        backward(True, True, True, True),
        {"direct": {"DQ_BIASED": LARGE, "DKV_BIASED": TALL, "DBIAS": LARGE}},
        label="extras",
        product=True,
        tolerance=16,
        # With every feature at once.
        spills=frozenset(
            {"DBIAS-(2, 32, 16384)", "DBIAS-(2, 128, 256)"}
            | {f"DQ_BIASED-(2, {width}, 16384)" for width in (64, 128, 256)}
            | {f"DKV_BIASED-(2, {width}, 16384)" for width in (128, 256)}
            | {f"DKV_BIASED-{point}" for point in ((2, 128, 256), (4, 64, 256), (4, 256, 256))}
            | {"DBIAS-(2, 256, 16384)", "DBIAS-(4, 256, 256)"}
        ),
    ),
    *(
        Case(
            "hstu_attention",
            direction,
            arguments(cut),
            {"short": {table: SHORT}},
            widths=(16,),
            label=label,
            product=True,
            tolerance=16,
            spills=frozenset({"BACKWARD_SHORT-(2, 128, 128)"}),  # 24 bytes, with every feature
        )
        for label, cut in (("short", 0), ("short-direct", DIRECT), ("short-search", SEARCH))
        for direction, arguments, table in (
            ("forward", short_forward, "FORWARD_SHORT"),
            ("backward", short_backward, "BACKWARD_SHORT" if cut else "BACKWARD_CAUSAL"),
        )
    ),
]
