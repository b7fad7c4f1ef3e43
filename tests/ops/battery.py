"""The ops as data: how to make arguments for each, what its oracle is, what belongs to a row.

A property that all ops share is one test over `CASES`. To add an op, add its cases here.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

import jagged
from jagged import testing

WIDTH = 3
LONGEST = 4  # N of dense operands and max_length: shorter than some rows

# Empty rows are in every draw more often than chance would have it.
LENGTHS = st.lists(st.one_of(st.just(0), st.integers(0, 9)), max_size=6)


@dataclass(frozen=True)
class Make:
    """Tensors of one jagged batch, as a case asks for them."""

    lengths: Sequence[int]
    device: torch.device
    dtype: torch.dtype = torch.float64
    offsets_dtype: torch.dtype = torch.int64
    tail: int = 0
    seed: int = 0
    _count: Iterator[int] = field(default_factory=itertools.count)

    @property
    def rows(self) -> int:
        return len(self.lengths)

    @property
    def total(self) -> int:
        return sum(self.lengths) + self.tail

    def offsets(self) -> Tensor:
        bounds = torch.tensor([0, *self.lengths]).cumsum(0)
        return bounds.to(self.device, self.offsets_dtype)

    def jagged(self, *trailing: int) -> Tensor:
        """[T, *trailing] normal numbers, NaN in the tail."""
        values = self.dense(self.total, *trailing)
        values[self.total - self.tail :] = torch.nan
        return values

    def dense(self, *shape: int) -> Tensor:
        """Normal numbers; another draw at every call."""
        generator = torch.Generator().manual_seed(1000 * self.seed + next(self._count))
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        return values.to(self.device, self.dtype)


Arguments = dict[str, Any]


@dataclass(frozen=True)
class OpCase:
    """One op with one set of options."""

    op: str
    arguments: Callable[[Make], Arguments]  # by name, without offsets
    operands: tuple[str, ...]  # the differentiable ones
    ragged: tuple[str, ...] = ("values",)  # those whose first dimension is the elements
    shared: tuple[str, ...] = ()  # those that all rows use
    result: str = "elements"  # what the first dimension of the result is: elements or rows
    label: str = ""
    needs_offsets: bool = True

    def __str__(self) -> str:
        return "-".join(filter(None, (self.op, self.label)))

    def call(self, arguments: Arguments) -> Tensor:
        out: Tensor = getattr(jagged.ops, self.op)(**arguments)
        return out

    def oracle(self, arguments: Arguments) -> Tensor:
        out: Tensor = getattr(testing, f"{self.op}_oracle")(**arguments)
        return out

    def make(self, make: Make) -> Arguments:
        arguments = self.arguments(make)
        if self.needs_offsets:
            arguments["offsets"] = make.offsets()
        return arguments


def _values(*trailing: int, **options: Any) -> Callable[[Make], Arguments]:
    return lambda make: {"values": make.jagged(*trailing), **options}


CASES = [
    OpCase("sum", _values(WIDTH), ("values",), result="rows"),
    OpCase("sum", _values(), ("values",), result="rows", label="flat"),
    OpCase("sum", _values(2, WIDTH), ("values",), result="rows", label="heads"),
    OpCase("mean", _values(WIDTH), ("values",), result="rows"),
    OpCase("mean", _values(), ("values",), result="rows", label="flat"),
    OpCase("mean", _values(2, WIDTH), ("values",), result="rows", label="heads"),
    OpCase("softmax", _values(WIDTH), ("values",)),
    OpCase("softmax", _values(), ("values",), label="flat"),
    OpCase("softmax", _values(2, WIDTH), ("values",), label="heads"),
    OpCase("softmax", _values(WIDTH, max_length=LONGEST), ("values",), label="cut"),
    OpCase("layer_norm", _values(WIDTH), ("values",)),
    OpCase(
        "layer_norm",
        lambda make: {
            "values": make.jagged(WIDTH),
            "weight": make.dense(WIDTH),
            "bias": make.dense(WIDTH),
            "eps": 0.1,
        },
        ("values", "weight", "bias"),
        shared=("weight", "bias"),
        label="affine",
    ),
    OpCase(
        "layer_norm",
        lambda make: {"values": make.jagged(WIDTH), "weight": make.dense(WIDTH)},
        ("values", "weight"),
        shared=("weight",),
        label="weight",
    ),
    OpCase("token_layer_norm", _values(WIDTH), ("values",)),
    OpCase(
        "token_layer_norm",
        lambda make: {
            "values": make.jagged(WIDTH),
            "weight": make.dense(WIDTH),
            "bias": make.dense(WIDTH),
            "eps": 0.1,
        },
        ("values", "weight", "bias"),
        shared=("weight", "bias"),
        label="affine",
    ),
    OpCase(
        "token_layer_norm",
        lambda make: {"values": make.jagged(WIDTH), "bias": make.dense(WIDTH)},
        ("values", "bias"),
        shared=("bias",),
        label="bias",
    ),
    OpCase(
        "token_layer_norm",
        lambda make: {"values": make.dense(make.total, WIDTH), "weight": make.dense(WIDTH)},
        ("values", "weight"),
        shared=("weight",),
        label="without_offsets",
        needs_offsets=False,
    ),
    OpCase(
        "norm_mul_dropout",
        lambda make: {
            "values": make.jagged(WIDTH),
            "u": make.jagged(WIDTH),
            "weight": make.dense(WIDTH),
            "bias": make.dense(WIDTH),
            "eps": 0.1,
            "silu": True,
            "concat": True,
        },
        ("values", "u", "weight", "bias"),
        ragged=("values", "u"),
        shared=("weight", "bias"),
        label="concat",
    ),
    OpCase(
        "norm_mul_dropout",
        lambda make: {
            "values": make.jagged(2, WIDTH),
            "u": make.jagged(2, WIDTH),
            "weight": make.dense(2),
            "bias": make.dense(2),
            "eps": 0.1,
            "silu": True,
        },
        ("values", "u", "weight", "bias"),
        ragged=("values", "u"),
        shared=("weight", "bias"),
        label="by_head",
    ),
    OpCase(
        "norm_mul_dropout",
        lambda make: {
            "values": make.dense(make.total, WIDTH),
            "u": make.dense(make.total, WIDTH),
            "bias": make.dense(WIDTH),
            "eps": 0.1,
        },
        ("values", "u", "bias"),
        ragged=("values", "u"),
        shared=("bias",),
        label="without_offsets",
        needs_offsets=False,
    ),
    *(
        OpCase(
            "dense_add",
            lambda make, trailing=trailing: {
                "values": make.jagged(*trailing),
                "dense": make.dense(make.rows, LONGEST, *trailing),
            },
            ("values", "dense"),
            label=label,
        )
        for label, trailing in (("", (WIDTH,)), ("flat", ()), ("heads", (2, WIDTH)))
    ),
    *(
        OpCase(
            "padded_add",
            lambda make, trailing=trailing: {
                "values": make.jagged(*trailing),
                "dense": make.dense(make.rows, LONGEST, *trailing),
            },
            ("values", "dense"),
            result="rows",
            label=label,
        )
        for label, trailing in (("", (WIDTH,)), ("flat", ()), ("heads", (2, WIDTH)))
    ),
    *(
        OpCase(
            "row_add",
            lambda make, trailing=trailing: {
                "values": make.jagged(*trailing),
                "dense": make.dense(make.rows, *trailing),
            },
            ("values", "dense"),
            label=label,
        )
        for label, trailing in (("", (WIDTH,)), ("flat", ()), ("heads", (2, WIDTH)))
    ),
    OpCase(
        "dense_bmm",
        lambda make: {
            "values": make.jagged(WIDTH),
            "dense": make.dense(make.rows, WIDTH, 5),
        },
        ("values", "dense"),
    ),
    OpCase(
        "dense_bmm",
        lambda make: {
            "values": make.jagged(WIDTH),
            "dense": make.dense(make.rows, WIDTH, 5),
            "bias": make.dense(make.rows, 5),
            "max_length": LONGEST,
        },
        ("values", "dense", "bias"),
        label="bias_cut",
    ),
    OpCase(
        "jagged_bmm",
        lambda make: {"x": make.jagged(WIDTH), "y": make.jagged(5)},
        ("x", "y"),
        ragged=("x", "y"),
        result="rows",
    ),
    OpCase(
        "jagged_bmm",
        lambda make: {"x": make.jagged(WIDTH), "y": make.jagged(5), "max_length": LONGEST},
        ("x", "y"),
        ragged=("x", "y"),
        result="rows",
        label="cut",
    ),
    *(
        OpCase(
            "to_padded",
            _values(*trailing, max_length=LONGEST, padding_value=-1.5),
            ("values",),
            result="rows",
            label=label,
        )
        for label, trailing in (("", (WIDTH,)), ("flat", ()), ("heads", (2, WIDTH)))
    ),
    *(
        OpCase(
            "from_padded",
            lambda make, trailing=trailing: {
                "dense": make.dense(make.rows, LONGEST, *trailing),
                "total": make.total,
            },
            ("dense",),
            ragged=(),
            label=label,
        )
        for label, trailing in (("", (WIDTH,)), ("flat", ()), ("heads", (2, WIDTH)))
    ),
]

JAGGED_CASES = [case for case in CASES if case.needs_offsets]
WIDE_CASES = [case for case in CASES if case.label != "flat"]


def with_gradients(arguments: Arguments, names: Sequence[str]) -> Arguments:
    """Fresh leaves, those of `names` with gradient."""
    return {
        name: value.detach().clone().requires_grad_(name in names)
        if isinstance(value, Tensor)
        else value
        for name, value in arguments.items()
    }


def outgoing(case: OpCase, out: Tensor, make: Make) -> Tensor:
    """A gradient of the result, NaN where the result is capacity tail."""
    grad = Make(make.lengths, make.device, out.dtype, seed=make.seed + 7).dense(*out.shape)
    if case.result == "elements" and case.needs_offsets and make.tail:
        grad[-make.tail :] = torch.nan
    return grad


def gradients(
    case: OpCase, arguments: Arguments, grad: Tensor, names: Sequence[str]
) -> tuple[Tensor, dict[str, Tensor]]:
    """The op's result and its gradients for the operands of `names`."""
    leaves = with_gradients(arguments, names)
    out = case.call(leaves)
    found = torch.autograd.grad(out, [leaves[name] for name in names], grad)
    return out.detach(), dict(zip(names, found, strict=True))


def oracle_gradients(
    case: OpCase, arguments: Arguments, grad: Tensor, accumulate: torch.dtype | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    """The oracle's result and all its gradients: in float64 throughout, or as plain torch has them.

    Plain torch is the oracle in the dtype `accumulate` between operands, result and gradients of
    the given dtypes.
    """
    dtype = torch.float64 if accumulate is None else grad.dtype
    leaves = with_gradients(
        {
            name: value.to(torch.float64) if accumulate is None and _floating(value) else value
            for name, value in arguments.items()
        },
        case.operands,
    )
    between = {
        name: value.to(accumulate or torch.float64) if _floating(value) else value
        for name, value in leaves.items()
    }
    out = case.oracle(between).to(dtype)
    if not out.requires_grad:  # there is no row to loop over
        return out, {name: torch.zeros_like(leaves[name]) for name in case.operands}
    found = torch.autograd.grad(
        out,
        [leaves[name] for name in case.operands],
        torch.nan_to_num(grad, nan=0.0).to(dtype),
        materialize_grads=True,
    )
    return out.detach(), dict(zip(case.operands, found, strict=True))


def _floating(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def widest(device: torch.device) -> torch.dtype:
    """The most exact dtype that the ops take there."""
    return torch.float64 if device.type == "cpu" else torch.float32


def assert_near(actual: Tensor, expected: Tensor) -> None:
    """Equal up to a rounding of the widest dtype."""
    tolerance = 1e-11 if actual.dtype == torch.float64 else 2e-5
    torch.testing.assert_close(
        actual, expected.to(actual.dtype), rtol=tolerance, atol=tolerance, equal_nan=True
    )


def subsets(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Every non-empty subset."""
    sizes = range(1, len(names) + 1)
    return [subset for size in sizes for subset in itertools.combinations(names, size)]
