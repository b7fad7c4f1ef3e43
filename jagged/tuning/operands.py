"""Arguments of the implementations of an op, `jagged.kernels.NAME.forward` and `backward`, made for
a shape: what the tuner measures, and what an export is generated for.

On the device "meta" they have shapes and dtypes but no memory; elsewhere they hold normal numbers,
and lengths that are uniform in 0 .. 2 x the mean.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

EPS = 1e-5
BUCKETS = 128  # of the time table of attention's relative bias


@dataclass(frozen=True)
class Shape:
    """Sizes of a call. Symbols as in the ops: B rows, T = rows x length elements."""

    rows: int
    length: int
    """Mean row length T / B."""
    width: int = 128
    """Features D; K of dense_bmm, M of jagged_bmm, D of attention's queries and keys."""
    columns: int = 0
    """N of dense_bmm and jagged_bmm, V of attention; 0: as many as the width."""
    heads: int = 1
    longest: int = 0
    """Max_length, or N of a padded tensor; 0: twice the mean length."""

    def __post_init__(self) -> None:
        for field in fields(self):
            size = getattr(self, field.name)
            least = 0 if field.name in ("columns", "longest") else 1
            if type(size) is not int:
                raise ValueError(f"{field.name} must be a whole number, got {size!r}")
            if size < least:
                raise ValueError(f"{field.name} must be at least {least}, got {size}")

    @property
    def total(self) -> int:
        return self.rows * self.length

    @property
    def most(self) -> int:
        return self.longest or 2 * self.length

    @property
    def others(self) -> int:
        return self.columns or self.width


def parse_shape(text: str) -> Shape:
    """`Shape` of a text such as "rows=1024,length=64,width=128".

    Raises:
        ValueError: an unknown or missing name, or a value that is no number.
    """
    known = {field.name for field in fields(Shape)}
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in known:
            raise ValueError(f"a shape has {', '.join(sorted(known))}, got {part.strip()!r}")
        if not value.isdecimal():
            raise ValueError(f"{name} must be a number, got {value!r}")
        sizes[name] = int(value)
    missing = {"rows", "length"} - set(sizes)
    if missing:
        raise ValueError(f"a shape needs rows and length, got {text!r}")
    return Shape(**sizes)


def parse_options(texts: Sequence[str]) -> dict[str, int]:
    """Options of an op from texts such as "bias=1".

    Raises:
        ValueError: a text is no name and number.
    """
    options = {}
    for text in texts:
        name, _, number = text.partition("=")
        if not number.isdecimal():
            raise ValueError(f"--option takes NAME=NUMBER, got {text!r}")
        options[name] = int(number)
    return options


@dataclass(frozen=True)
class _Maker:
    shape: Shape
    dtype: torch.dtype
    offsets_dtype: torch.dtype
    device: str
    options: Mapping[str, int]

    def values(self, *sizes: int) -> Tensor:
        return torch.randn(sizes, device=self.device).to(self.dtype)

    def elements(self, *trailing: int) -> Tensor:
        return self.values(self.shape.total, *trailing)

    def float32(self, *sizes: int) -> Tensor:
        """Statistics of a layer norm, or a table: positive."""
        return torch.rand(sizes, device=self.device) + 0.5

    @cached_property
    def offsets(self) -> Tensor:
        shape = self.shape
        if self.device == "meta":
            return torch.empty(shape.rows + 1, dtype=self.offsets_dtype, device="meta")
        lengths = torch.randint(0, 2 * shape.length + 1, (shape.rows,), device=self.device)
        ends = lengths.clamp(max=shape.most).cumsum(0).clamp(max=shape.total)
        return torch.nn.functional.pad(ends, (1, 0)).to(self.offsets_dtype)

    def has(self, name: str) -> bool:
        return bool(self.options.get(name, 0))

    def limit(self) -> int | None:
        """The max_length of an op that has one as an option."""
        return self.options.get("max_length")


Arguments = Callable[[_Maker], tuple[Any, ...]]


def _cells(make: _Maker) -> Tensor:
    return make.values(make.shape.rows, make.shape.most, make.shape.width)


def _matrices(make: _Maker) -> Tensor:
    return make.values(make.shape.rows, make.shape.width, make.shape.others)


def _affine(make: _Maker) -> tuple[Tensor | None, Tensor | None]:
    width = make.shape.width
    return (None, None) if make.has("plain") else (make.values(width), make.values(width))


def _layer_norm_backward(make: _Maker, statistics: int) -> tuple[Any, ...]:
    width = make.shape.width
    weight, bias = _affine(make)
    grad, values = make.elements(width), make.elements(width)
    moments = make.float32(statistics), make.float32(statistics)
    return (grad, values, *moments, weight, bias is not None)


def _norm_backward(make: _Maker) -> tuple[Any, ...]:
    grad, values, *rest = _layer_norm_backward(make, make.shape.rows)
    return (grad, values, make.offsets, *rest)


def _gate(make: _Maker) -> tuple[Any, ...]:
    """values, u, weight, bias; by head where the shape has several."""
    heads, width = make.shape.heads, make.shape.width
    trailing = (width,) if heads == 1 else (heads, width)
    parameters = () if make.has("plain") else trailing[:1]
    weight, bias = (make.values(*parameters) if parameters else None for _ in range(2))
    return (make.elements(*trailing), make.elements(*trailing), weight, bias)


def _gate_options(make: _Maker) -> tuple[Any, ...]:
    """silu, concat, dropout, seed, offsets."""
    percent = make.options.get("dropout", 0)
    if not 0 <= percent < 100:
        raise ValueError(f"dropout is in percent, from 0 to 99, got {percent}")
    seed = torch.full((1,), 7, dtype=torch.int64, device=make.device) if percent else None
    return (make.has("silu"), make.has("concat"), percent / 100, seed, make.offsets)


def _gate_backward(make: _Maker) -> tuple[Any, ...]:
    shape = make.shape
    parts = 3 if make.has("concat") else 1
    values, u, weight, bias = _gate(make)
    moments = (make.float32(shape.total, shape.heads) for _ in range(2))
    grad = make.elements(parts * shape.heads * shape.width)
    return (grad, values, u, *moments, weight, bias, bias is not None, *_gate_options(make))


def _attention(make: _Maker) -> tuple[Any, ...]:
    shape, options = make.shape, make.options
    targets = make.offsets.diff().clamp(max=1) if make.has("targets") else None
    position = make.float32(2 * shape.most - 1) if make.has("position") else None
    time = make.float32(BUCKETS + 1) if make.has("time") else None
    stamps = torch.arange(shape.total, device=make.device) if make.has("time") else None
    mask = (options.get(name, 0) for name in ("window", "contextual", "min_full"))
    return (
        make.elements(shape.heads, shape.width),
        make.elements(shape.heads, shape.width),
        make.elements(shape.heads, shape.others),
        make.offsets,
        shape.most,
        1.0 / shape.most,
        make.float32(shape.total) if make.has("scales") else None,
        shape.width**-0.5,
        *mask,
        targets,
        position,
        time,
        stamps,
        "log",
        0.301,
    )


def _attention_backward(make: _Maker) -> tuple[Any, ...]:
    grad = make.elements(make.shape.heads, make.shape.others)
    bias = make.has("position") or make.has("time")
    return (grad, *_attention(make), True, True, bias)


# Numbers: 0 or 1 for what is on or off; `dropout` in percent.
OPTIONS: dict[str, tuple[str, ...]] = {
    "softmax": ("max_length",),
    "layer_norm": ("plain",),
    "token_layer_norm": ("plain",),
    "norm_mul_dropout": ("plain", "silu", "concat", "dropout"),
    "dense_bmm": ("bias", "max_length"),
    "jagged_bmm": ("max_length",),
    "hstu_attention": ("window", "contextual", "min_full", "scales", "targets", "position", "time"),
}

_FORWARD: dict[str, Arguments] = {
    "sum": lambda m: (m.elements(m.shape.width), m.offsets),
    "mean": lambda m: (m.elements(m.shape.width), m.offsets),
    "softmax": lambda m: (m.elements(m.shape.width), m.offsets, m.limit()),
    "layer_norm": lambda m: (m.elements(m.shape.width), m.offsets, *_affine(m), EPS),
    "token_layer_norm": lambda m: (m.elements(m.shape.width), *_affine(m), EPS, m.offsets),
    "dense_add": lambda m: (m.elements(m.shape.width), m.offsets, _cells(m)),
    "padded_add": lambda m: (m.elements(m.shape.width), m.offsets, _cells(m)),
    "row_add": lambda m: (
        m.elements(m.shape.width),
        m.offsets,
        m.values(m.shape.rows, m.shape.width),
    ),
    "dense_bmm": lambda m: (
        m.elements(m.shape.width),
        m.offsets,
        _matrices(m),
        m.values(m.shape.rows, m.shape.others) if m.has("bias") else None,
        m.limit(),
    ),
    "jagged_bmm": lambda m: (
        m.elements(m.shape.width),
        m.elements(m.shape.others),
        m.offsets,
        m.limit(),
    ),
    "to_padded": lambda m: (m.elements(m.shape.width), m.offsets, m.shape.most, 0.0),
    "from_padded": lambda m: (_cells(m), m.offsets, m.shape.total),
    "norm_mul_dropout": lambda m: (*_gate(m), EPS, *_gate_options(m)),
    "hstu_attention": _attention,
}

_BACKWARD: dict[str, Arguments] = {
    "sum": lambda m: (m.values(m.shape.rows, m.shape.width), m.offsets, m.shape.total),
    "mean": lambda m: (m.values(m.shape.rows, m.shape.width), m.offsets, m.shape.total),
    "softmax": lambda m: (
        m.elements(m.shape.width),
        m.elements(m.shape.width),
        m.offsets,
        m.limit(),
    ),
    "layer_norm": _norm_backward,
    "token_layer_norm": lambda m: (*_layer_norm_backward(m, m.shape.total), m.offsets),
    "dense_add": lambda m: (m.elements(m.shape.width), m.offsets, m.shape.most, True, True),
    "padded_add": lambda m: (_cells(m), m.offsets, m.shape.total),
    "row_add": lambda m: (m.elements(m.shape.width), m.offsets, True, True),
    "dense_bmm": lambda m: (
        m.elements(m.shape.others),
        m.elements(m.shape.width),
        m.offsets,
        _matrices(m),
        m.has("bias"),
        m.limit(),
        True,
        True,
    ),
    "jagged_bmm": lambda m: (
        _matrices(m),
        m.elements(m.shape.width),
        m.elements(m.shape.others),
        m.offsets,
        m.limit(),
        True,
        True,
    ),
    "to_padded": lambda m: (_cells(m), m.offsets, m.shape.total),
    "from_padded": lambda m: (m.elements(m.shape.width), m.offsets, m.shape.most),
    "norm_mul_dropout": _gate_backward,
    "hstu_attention": _attention_backward,
}

OPS = tuple(sorted(_FORWARD))
ANY_DTYPE = ("from_padded", "to_padded")  # the ops that take integers too


def make(
    op: str,
    direction: str,
    shape: Shape,
    dtype: torch.dtype,
    offsets_dtype: torch.dtype,
    device: str,
    options: Mapping[str, int] | None = None,
) -> tuple[Any, ...]:
    """The positional arguments of `jagged.kernels.<op>.<direction>`.

    Raises:
        ValueError: an unknown op, direction or option, or a dropout that is no percentage.
    """
    if op not in _FORWARD:
        raise ValueError(f"op must be one of {', '.join(OPS)}, got {op!r}")
    if direction not in ("forward", "backward"):
        raise ValueError(f"direction must be forward or backward, got {direction!r}")
    options = dict(options or {})
    unknown = set(options) - set(OPTIONS.get(op, ()))
    if unknown:
        known = ", ".join(OPTIONS.get(op, ())) or "none"
        raise ValueError(f"options of {op} are: {known}; got {', '.join(sorted(unknown))}")
    table = _FORWARD if direction == "forward" else _BACKWARD
    return table[op](_Maker(shape, dtype, offsets_dtype, device, options))
