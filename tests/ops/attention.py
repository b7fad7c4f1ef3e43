"""Cases of hstu_attention for the tests of all ops, which take an op's arguments as a flat dict."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import jagged
from jagged import BucketedBias, HSTUMask
from jagged.testing import hstu_attention_oracle, hstu_attention_plain
from tests.ops.battery import Arguments, Make, OpCase

BIAS = ("position_table", "time_table", "timestamps", "bucket", "divisor")


def arguments_of_op(arguments: Arguments) -> Arguments:
    """The arguments with the parts of the bias put into a record."""
    given = {name: value for name, value in arguments.items() if name not in BIAS}
    bias = {name: value for name, value in arguments.items() if name in BIAS}
    return {**given, "bias": BucketedBias(**bias)} if bias else given


@dataclass(frozen=True)
class AttentionCase(OpCase):
    def call(self, arguments: Arguments) -> Tensor:
        return jagged.ops.hstu_attention(**arguments_of_op(arguments))

    def oracle(self, arguments: Arguments) -> Tensor:
        exact = arguments["q"].dtype == torch.float64
        oracle = hstu_attention_oracle if exact else hstu_attention_plain
        return oracle(**arguments_of_op(arguments))


def attention(
    *,
    heads: int = 2,
    features: int = 3,
    value_features: int = 5,
    mask: HSTUMask | None = None,
    targets: bool = False,
    per_query: bool = False,
    bias: str = "",
    bucket: str = "log",
    cut: int | None = None,
    **options: Any,
) -> Callable[[Make], Arguments]:
    """Makes q, k, v and what else the options ask for; `bias` is position, time or both."""

    def make_arguments(make: Make) -> Arguments:
        longest = max(make.lengths, default=0)
        found: Arguments = {
            "q": make.jagged(heads, features),
            "k": make.jagged(heads, features),
            "v": make.jagged(heads, value_features),
            "max_length": longest if cut is None else cut,
            "scale": make.jagged() if per_query else 0.3,
            **options,
        }
        if mask is not None:
            found["mask"] = mask
        if targets:
            # Also below 0 and above a row's length, which the op clamps.
            found["num_targets"] = torch.arange(-1, make.rows - 1, device=make.device) % 5 - 1
        if bias in ("position", "both"):
            found["position_table"] = make.dense(2 * max(found["max_length"], 1) - 1)
        if bias in ("time", "both"):
            seconds = 10 ** (3 + 2 * make.dense(make.total).abs().clamp(max=2))
            found["timestamps"] = seconds.to(torch.int64).cumsum(0)
            found["time_table"] = make.dense(30)
            found["bucket"] = bucket
            found["divisor"] = 0.301 if bucket == "log" else 300.0
        return found

    return make_arguments


def case(label: str, **options: Any) -> AttentionCase:
    bias = options.get("bias", "")
    tables = tuple(f"{name}_table" for name in ("position", "time") if bias in (name, "both"))
    return AttentionCase(
        "hstu_attention",
        attention(**options),
        ("q", "k", "v", *tables),
        ragged=("q", "k", "v"),
        shared=tables,
        label=label,
    )


CASES = [
    case(""),
    case("window", mask=HSTUMask(window=2), heads=1, features=1),
    case("targets", targets=True, value_features=1),
    case("context", mask=HSTUMask(contextual=2), targets=True, features=9),
    case("all_masks", mask=HSTUMask(window=2, contextual=2, min_full=1), targets=True),
    case("min_full", mask=HSTUMask(window=1, min_full=2), alpha=0.7),
    case("per_query", per_query=True),
    case("bias", bias="both"),
    case(
        "everything",
        mask=HSTUMask(window=3, contextual=3, min_full=1),
        targets=True,
        per_query=True,
        bias="both",
        bucket="sqrt",
        alpha=1.5,
    ),
    case("position", bias="position", heads=3),
    case("time", bias="time", mask=HSTUMask(contextual=2)),
    case("cut", cut=5, targets=True, mask=HSTUMask(contextual=2), bias="position"),
]
