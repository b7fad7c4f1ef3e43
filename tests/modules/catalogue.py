"""Every layer with inputs for it, so that the promises all layers make are tested once for all.

An input is jagged, or has one entry a row, or one entry an element: from that the tests build
the same batch with a capacity tail, a single row of it, or a batch of no rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from jagged import JaggedTensor, modules
from jagged.testing import random_jagged

Kind = Literal["jagged", "row", "element"]
D, H, N = 6, 2, 8  # features, heads, longest row


@dataclass(frozen=True)
class Batch:
    """The arguments of one call, by name, and what each of them is."""

    arguments: dict[str, Any]
    kinds: dict[str, Kind]

    def row(self, index: int) -> "Batch":
        """The same call on one row alone."""
        jagged = next(
            value for name, value in self.arguments.items() if self.kinds[name] == "jagged"
        )
        start, end = jagged.offsets[index : index + 2].tolist()
        parts: dict[str, Any] = {}
        for name, value in self.arguments.items():
            if self.kinds[name] == "jagged":
                offsets = torch.tensor([0, end - start])
                parts[name] = JaggedTensor(value.values[start:end], offsets, value.max_length)
            else:
                parts[name] = (
                    value[index : index + 1] if self.kinds[name] == "row" else value[start:end]
                )
        return Batch(parts, self.kinds)

    def leaves(self) -> dict[str, Tensor]:
        """The floating point tensors in it."""
        tensors = {
            name: value.values if isinstance(value, JaggedTensor) else value
            for name, value in self.arguments.items()
        }
        return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}

    def with_leaves(self, leaves: dict[str, Tensor]) -> "Batch":
        """The same batch with other floating point tensors, by name."""
        changed = dict(self.arguments)
        for name, leaf in leaves.items():
            old = changed[name]
            changed[name] = old.with_values(leaf) if isinstance(old, JaggedTensor) else leaf
        return Batch(changed, self.kinds)


@dataclass(frozen=True)
class Case:
    """A layer (in evaluation mode where it has dropout) and how to call it."""

    name: str
    build: Callable[[], nn.Module]
    features: tuple[int, ...] = (D,)
    rows: tuple[tuple[str, tuple[int, ...]], ...] = ()
    second: tuple[int, ...] | None = None
    targets: bool = False
    timestamps: bool = False

    def layer(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        torch.manual_seed(3)
        return self.build().to(dtype)

    def batch(
        self,
        lengths: Sequence[int],
        dtype: torch.dtype = torch.float32,
        *,
        tail: int = 0,
        offsets_dtype: torch.dtype = torch.int64,
        known: bool = True,
        seed: int = 0,
    ) -> Batch:
        """Random arguments; the tail holds NaN, or nonsense where the argument is an integer."""
        total, generator = sum(lengths), torch.Generator().manual_seed(seed)

        def jagged(features: tuple[int, ...], seed: int) -> JaggedTensor:
            x = random_jagged(
                lengths, *features, dtype=dtype, offsets_dtype=offsets_dtype, seed=seed
            )
            nothing = torch.full((tail, *features), torch.nan, dtype=dtype)
            values = torch.cat([x.values, nothing])
            return JaggedTensor(values, x.offsets, N if known else None)

        arguments: dict[str, Any] = {"x": jagged(self.features, seed)}
        kinds: dict[str, Kind] = {"x": "jagged"}
        if self.second is not None:
            arguments["y"] = jagged(self.second, seed + 100)
            kinds["y"] = "jagged"
        for name, shape in self.rows:
            dense = torch.randn(len(lengths), *shape, generator=generator, dtype=torch.float64)
            arguments[name] = dense.to(dtype)
            kinds[name] = "row"
        if self.targets:
            arguments["num_targets"] = torch.tensor([min(1, n) for n in lengths], dtype=torch.int64)
            kinds["num_targets"] = "row"
        if self.timestamps:
            times = torch.randint(0, 10**6, (total,), generator=generator).cumsum(0)
            arguments["timestamps"] = torch.cat([times, torch.full((tail,), -(2**62))])
            kinds["timestamps"] = "element"
        return Batch(arguments, kinds)


def call(layer: Callable[..., Any], batch: Batch) -> Tensor:
    """Run a layer; the values of its result."""
    out = layer(**batch.arguments)
    result: Tensor = out.values if isinstance(out, JaggedTensor) else out
    return result


def is_jagged(layer: Callable[..., Any], batch: Batch) -> bool:
    """Whether the result has one entry an element, not one a row."""
    return isinstance(layer(**batch.arguments), JaggedTensor)


SHAPE: dict[str, Any] = {
    "embedding_dim": D,
    "num_heads": H,
    "attention_dim": 3,
    "hidden_dim": 4,
    "max_length": N,
    "dropout": 0.0,
}


def randomised(layer: nn.Module) -> nn.Module:
    """All parameters away from 0 and 1, where a term that is missing would not show."""
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


CASES = [
    Case("SumPooling", modules.SumPooling),
    Case("MeanPooling", modules.MeanPooling),
    Case("LastPooling", modules.LastPooling),
    Case("AttentionPooling", lambda: modules.AttentionPooling(D, H)),
    Case("JaggedSoftmax", modules.JaggedSoftmax),
    Case("JaggedDenseAdd", modules.JaggedDenseAdd, rows=(("dense", (4, D)),)),
    Case(
        "JaggedDenseAdd-padded", lambda: modules.JaggedDenseAdd("padded"), rows=(("dense", (4, D)),)
    ),
    Case("JaggedRowAdd", modules.JaggedRowAdd, rows=(("dense", (D,)),)),
    Case("JaggedDropout", lambda: modules.JaggedDropout(0.3).eval()),
    Case("JaggedBMM-dense", modules.JaggedBMM, rows=(("y", (D, 5)),)),
    Case("JaggedBMM-jagged", modules.JaggedBMM, second=(4,)),
    Case("JaggedLayerNorm", lambda: randomised(modules.JaggedLayerNorm(D))),
    Case("TokenLayerNorm", lambda: randomised(modules.TokenLayerNorm(D))),
    Case("HeadLayerNorm", lambda: randomised(modules.HeadLayerNorm(H)), features=(H, 3)),
    Case("JaggedLinear", lambda: modules.JaggedLinear(D, 5)),
    Case(
        "PerRowLinear", lambda: randomised(modules.PerRowLinear(D, 5, 3)), rows=(("context", (3,)),)
    ),
    Case(
        "PerRowLinear-given",
        lambda: modules.PerRowLinear(D, 5),
        rows=(("context", (D, 5)), ("row_bias", (5,))),
    ),
    Case("PositionEncoder", lambda: modules.PositionEncoder(6, D, 1), targets=True),
    Case("TimestampEncoder", lambda: modules.TimestampEncoder(20, D), timestamps=True),
    Case(
        "HSTULayer-research",
        lambda: randomised(modules.HSTULayer(modules.HSTUConfig.research(**SHAPE))),
        timestamps=True,
    ),
    Case(
        "HSTUStack-production",
        lambda: randomised(
            modules.HSTUStack(
                modules.HSTUConfig.production(
                    **SHAPE, num_layers=2, group_norm=True, window=(3, 0), contextual=1
                )
            )
        ),
        targets=True,
    ),
]
NAMES = [case.name for case in CASES]
