"""The shapes that are measured: row lengths by a law, sizes, and where they come from.

Lengths are drawn on the host from a seed of their own, so they are the same on every machine;
bytes and FLOPs are counted from these real lengths.
"""

import dataclasses
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from jagged import HSTUMask

Law = Callable[[int, int, torch.Generator], Tensor]
"""(rows, longest, generator) to lengths [rows] int64, each 0..longest."""

_CAUSAL = HSTUMask()
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16


def uniform(low: float = 0.0) -> Law:
    """Every length from low * longest to longest alike."""

    def law(rows: int, longest: int, generator: torch.Generator) -> Tensor:
        return torch.randint(int(low * longest), longest + 1, (rows,), generator=generator)

    return law


def skew(rows: int, longest: int, generator: torch.Generator) -> Tensor:
    """longest * u^4: many short rows, few long ones."""
    return (longest * torch.rand(rows, generator=generator) ** 4).to(torch.int64)


def full(rows: int, longest: int, generator: torch.Generator) -> Tensor:
    """All rows as long as the longest."""
    return torch.full((rows,), longest)


def mostly_empty(rows: int, longest: int, generator: torch.Generator) -> Tensor:
    """Nine of ten rows empty, the others 1..longest."""
    lengths = torch.randint(1, longest + 1, (rows,), generator=generator)
    return torch.where(torch.rand(rows, generator=generator) < 0.9, 0, lengths)


def sparse(sparsity: float) -> Law:
    """tritonbench's: longest * (1 - sparsity), give or take 0.3 * longest, at least 1."""

    def law(rows: int, longest: int, generator: torch.Generator) -> Tensor:
        spread = 0.3 * (2 * torch.rand(rows, generator=generator) - 1)
        return (longest * (1 - sparsity + spread)).to(torch.int64).clamp(1, longest)

    return law


@dataclass(frozen=True)
class Attention:
    """What HSTU attention has beyond rows and features (which are H heads and D a head)."""

    heads: int
    value_features: int
    mask: HSTUMask = _CAUSAL
    targets: int = 0  # 1..targets of them at the end of each row; 0 for none
    position: bool = False
    time: bool = False
    per_query: bool = False
    fused: bool = False  # q, k, v are views of one projection

    @property
    def plain(self) -> bool:
        """Causal and nothing else, so that other libraries can be compared."""
        return self.mask == _CAUSAL and self.targets == 0 and not self.position and not self.time


@dataclass(frozen=True)
class Shape:
    """One set of sizes. `features` is D, or None for one number an element."""

    name: str
    rows: int
    longest: int
    features: int | None
    law: Law
    source: str
    dtypes: tuple[torch.dtype, ...] = (BF16,)
    columns: int = 128  # N of the two matrix products
    bias: bool = False  # of dense_bmm
    offsets_dtype: torch.dtype = torch.int64
    compiled: tuple[torch.dtype, ...] = ()  # where torch.compile, slow to start, takes part
    attention: Attention | None = None

    def lengths(self) -> Tensor:
        """Row lengths [rows], int64 on the host; the same at every call."""
        seed = zlib.crc32(self.name.encode())
        generator = torch.Generator().manual_seed(seed)
        return self.law(self.rows, self.longest, generator).to(torch.int64)

    @property
    def width(self) -> int:
        """Features of an element."""
        return 1 if self.features is None else self.features


OURS = "own: the two standard shapes of the project's targets"
TRITONBENCH = "tritonbench jagged_sum/mean/softmax/layer_norm"
TORCHREC = "torchrec, production batches"

UNIFORM = Shape("uniform", 4096, 512, 128, uniform(), OURS, (BF16, F32, F16), compiled=(BF16,))
SKEW = Shape("skew", 8192, 512, 128, skew, OURS, (BF16, F32), compiled=(BF16,))
STANDARD = (UNIFORM, SKEW)

# T is 1 to 2 million whatever the mean, so that the chip is full.
SHORT = tuple(
    Shape(
        f"mean{mean}-d{features}",
        2**20 * 128 // max(features, 64) // mean,
        2 * mean,
        features,
        uniform(),
        "own: recommender rows are short",
    )
    for features in (128, 32)
    for mean in (4, 16, 64, 512)
)

TRITON = tuple(
    Shape(
        f"tritonbench-b{rows}-m{features}-n{longest}-s{sparsity}",
        rows,
        longest,
        features,
        sparse(sparsity),
        TRITONBENCH,
        (F32,),
    )
    for rows, features, longest, sparsity in (
        (512, 64, 100, 0.1),
        (512, 64, 500, 0.75),
        (4096, 99, 1000, 0.5),
        (64, 4096, 3000, 0.9),
        (32768, 4, 500, 0.75),
    )
)

# What surrounds the attention of a production HSTU layer with 4 heads of 128.
LAYERS = tuple(
    Shape(f"layer-b{rows}", rows, 2048, 512, uniform(), OURS, compiled=(BF16,))
    for rows in (256, 32, 8)
)

CELLS = Shape(
    "torchrec-cells", 140_472, 320, None, uniform(), TORCHREC, (F32,), offsets_dtype=torch.int32
)
SEQUENCE = Shape(
    "torchrec-sequence", 2048, 200, 128, uniform(0.72), TORCHREC, offsets_dtype=torch.int32
)
EMPTY = Shape("empty90", 16_384, 512, 128, mostly_empty, "own: nine of ten rows empty")
SLOW_PATH = Shape(
    "b18431", 18_431, 64, 128, uniform(), "fbgemm: its fp16 fast path ends at B = 18,430", (F16,)
)

RECOMMENDERS_BMM = tuple(
    Shape(
        f"gr-bmm-n{longest}",
        512,
        longest,
        64,
        uniform(),
        "generative-recommenders jagged_dense_bmm benchmark",
        columns=64,
    )
    for longest in (32, 512, 8192)
)
RECOMMENDERS_BIAS = tuple(
    Shape(
        f"gr-bmm-bias-n{longest}",
        384,
        longest,
        512,
        uniform(),
        "generative-recommenders jagged_dense_bmm_broadcast_add benchmark",
        columns=512,
        bias=True,
    )
    for longest in (256, 2048)
)

SMALL = Shape("small", 256, 64, 32, uniform(), "own: for CPUs", (F32,), columns=16)
CALL = Shape("call", 64, 64, 64, uniform(), "own: the cost of a call", (BF16,), columns=64)


def attention_shape(
    name: str,
    rows: int,
    longest: int,
    heads: int,
    features: int,
    law: Law,
    source: str,
    *,
    dtypes: tuple[torch.dtype, ...] = (BF16,),
    value_features: int | None = None,
    mask: HSTUMask = _CAUSAL,
    targets: int = 0,
    position: bool = False,
    time: bool = False,
    per_query: bool = False,
    fused: bool = False,
    compiled: tuple[torch.dtype, ...] = (),
) -> Shape:
    """A shape of HSTU attention; V is D unless given."""
    attention = Attention(
        heads,
        features if value_features is None else value_features,
        mask,
        targets,
        position,
        time,
        per_query,
        fused,
    )
    return Shape(
        name,
        rows,
        longest,
        features,
        law,
        source,
        dtypes,
        compiled=compiled,
        attention=attention,
    )


TARGET = "own: the project's targets"
ATTENTION_TARGETS = (
    attention_shape(
        "uniform-b128-n2048-h4-d128", 128, 2048, 4, 128, uniform(), TARGET, compiled=(BF16,)
    ),
    attention_shape("skew-b256-n4096-h4-d128", 256, 4096, 4, 128, skew, TARGET),
    attention_shape(
        "uniform-b1024-n256-h4-d128", 1024, 256, 4, 128, uniform(), TARGET, compiled=(BF16,)
    ),
    attention_shape("uniform-b1024-n512-h8-d64", 1024, 512, 8, 64, uniform(), TARGET),
    attention_shape("full-b32-n4096-h4-d128", 32, 4096, 4, 128, full, TARGET),
    attention_shape("full-b16-n8192-h4-d64", 16, 8192, 4, 64, full, TARGET),
)

# The tokens stay at 131,072.
ATTENTION_LENGTHS = tuple(
    attention_shape(
        f"full-n{longest}-h4-d128", 131_072 // longest, longest, 4, 128, full, "own: length sweep"
    )
    for longest in (128, 256, 512, 1024, 2048, 8192, 16384)
)


def _variant(name: str, **options: object) -> Shape:
    base = attention_shape(f"feature-{name}", 64, 2048, 4, 128, uniform(), "own: one feature each")
    shape = {k: options.pop(k) for k in ("features", "rows", "longest") if k in options}
    assert base.attention is not None
    attention = dataclasses.replace(base.attention, **options)  # type: ignore[arg-type]
    return dataclasses.replace(base, attention=attention, **shape)  # type: ignore[arg-type]


ATTENTION_FEATURES = (
    _variant("window", mask=HSTUMask(window=256)),
    _variant("targets", targets=20),
    _variant("context", mask=HSTUMask(contextual=10), targets=20),
    _variant("everything", mask=HSTUMask(window=256, contextual=10, min_full=64), targets=20),
    _variant("position", position=True),
    _variant("time", position=True, time=True),
    _variant("per-query", per_query=True),
    _variant("fused", fused=True),
    _variant("d32", features=32, value_features=32, heads=8),
    _variant("d64-v128", features=64, value_features=128),
    _variant("d256", features=256, value_features=256, heads=2),
    # Published configurations of research HSTU: ML-1M has 50 over 2 heads, Books 64 over 8.
    _variant("d25", features=25, value_features=25, heads=2, rows=1024, longest=211),
    _variant("d8", features=8, value_features=8, heads=8, rows=1024, longest=61),
)

ATTENTION_RECOMMENDERS = tuple(
    attention_shape(
        f"gr-n{longest}",
        512,
        longest,
        4,
        128,
        uniform(0.9),
        "generative-recommenders hstu_attention benchmark",
        targets=20,
    )
    for longest in (256, 1024, 2048)
)

ATTENTION_SMALL = attention_shape("small", 16, 64, 2, 16, uniform(), "own: for CPUs", dtypes=(F32,))
ATTENTION_CALL = attention_shape("call", 16, 64, 2, 32, uniform(), "own: the cost of a call")
