"""What a user is told: which argument, what was wrong with it, what it was, what to do."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from jagged import JaggedTensor, ops

VALUES = torch.randn(5, 3)
OFFSETS = torch.tensor([0, 2, 2, 5])
GRID = torch.randn(3, 4, 3)
MATRICES = torch.randn(3, 3, 6)


def wide_stride(*shape: int) -> torch.Tensor:
    """Last stride 2."""
    return torch.randn(*shape[:-1], 2 * shape[-1])[..., ::2]


ON_VALUES: dict[str, Callable[..., Any]] = {
    "sum": lambda values, offsets: ops.sum(values, offsets),
    "mean": lambda values, offsets: ops.mean(values, offsets),
    "softmax": lambda values, offsets: ops.softmax(values, offsets),
    "layer_norm": lambda values, offsets: ops.layer_norm(values, offsets),
    "token_layer_norm": lambda values, offsets: ops.token_layer_norm(values, offsets=offsets),
    "dense_add": lambda values, offsets: ops.dense_add(values, offsets, GRID),
    "padded_add": lambda values, offsets: ops.padded_add(values, offsets, GRID),
    "row_add": lambda values, offsets: ops.row_add(values, offsets, GRID[:, 0]),
    "dense_bmm": lambda values, offsets: ops.dense_bmm(values, offsets, MATRICES),
    "to_padded": lambda values, offsets: ops.to_padded(values, offsets, 4),
}
MATRIX_OPS = ["layer_norm", "token_layer_norm", "dense_bmm"]


@pytest.mark.parametrize("op", ON_VALUES)
@pytest.mark.parametrize(
    ("values", "offsets", "error", "message"),
    [
        (VALUES.tolist(), OFFSETS, TypeError, "values must be a torch.Tensor, got list"),
        (VALUES, [0, 5], TypeError, "offsets must be a torch.Tensor, got list"),
        (
            VALUES,
            OFFSETS.float(),
            TypeError,
            "offsets must be int32 or int64, got torch.float32: convert with offsets.to(torch.int",
        ),
        (
            VALUES,
            OFFSETS.to(torch.int16),
            TypeError,
            "offsets must be int32 or int64, got torch.int",
        ),
        (
            VALUES,
            OFFSETS[None],
            ValueError,
            "offsets must be one-dimensional [B + 1], got shape [1,",
        ),
        (
            VALUES,
            OFFSETS[:0],
            ValueError,
            "offsets must have B + 1 entries and start with 0, got an empty tensor: a batch of no "
            "rows has offsets [0]",
        ),
        (
            VALUES,
            OFFSETS.to("meta"),
            ValueError,
            "offsets must be on the device of values (cpu), got meta: move them with "
            "offsets.to(values.device)",
        ),
        (
            wide_stride(5, 3),
            OFFSETS,
            ValueError,
            "values must have stride 1 in its last dimension, got strides [6, 2] for shape [5, 3]: "
            "call values.contiguous()",
        ),
        (VALUES.to(torch.complex64), OFFSETS, TypeError, "values must be float"),
        (
            VALUES.to(torch.float8_e5m2),
            OFFSETS,
            TypeError,
            "values must be float32, bfloat16, float",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_values_and_offsets(
    op: str, values: Any, offsets: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        ON_VALUES[op](values, offsets)


@pytest.mark.parametrize("op", [op for op in ON_VALUES if op != "to_padded"])
def test_integers_are_not_computed_with(op: str) -> None:
    message = "values must be float32, bfloat16, float16 or (on the CPU) float64, got torch.int64"
    with pytest.raises(TypeError, match=re.escape(message)):
        ON_VALUES[op](VALUES.long(), OFFSETS)


@pytest.mark.parametrize("op", ON_VALUES)
def test_a_scalar_has_no_rows(op: str) -> None:
    message = "must have 2 dimensions" if op in MATRIX_OPS else "at least one dimension"
    with pytest.raises(ValueError, match=message):
        ON_VALUES[op](torch.tensor(1.0), OFFSETS)


@pytest.mark.parametrize("op", MATRIX_OPS)
def test_values_of_other_rank(op: str) -> None:
    message = "values must have 2 dimensions, got shape [5, 1, 3]: reshape it first"
    with pytest.raises(ValueError, match=re.escape(message)):
        ON_VALUES[op](VALUES[:, None], OFFSETS)


def test_x_and_y_of_jagged_bmm() -> None:
    x, y = VALUES, torch.randn(5, 2)
    for call, error, message in [
        (lambda: ops.jagged_bmm(x[0], y, OFFSETS), ValueError, "x must have 2 dimensions"),
        (
            lambda: ops.jagged_bmm(x, y[0], OFFSETS),
            ValueError,
            "y must have shape [T, N] = [5, any]",
        ),
        (lambda: ops.jagged_bmm(x, y[1:], OFFSETS), ValueError, "got [4, 2]"),
        (lambda: ops.jagged_bmm(x, y.double(), OFFSETS), TypeError, "y must have the dtype of x"),
        (lambda: ops.jagged_bmm(x.long(), y, OFFSETS), TypeError, "x must be float32"),
        (
            lambda: ops.jagged_bmm(x, y, OFFSETS.float()),
            TypeError,
            "offsets must be int32 or int64",
        ),
        (
            lambda: ops.jagged_bmm(x, y.to("meta"), OFFSETS),
            ValueError,
            "y must be on the device of x",
        ),
        (lambda: ops.jagged_bmm(x, y, OFFSETS.to("meta")), ValueError, "on the device of x (cpu)"),
        (lambda: ops.jagged_bmm(x, wide_stride(5, 2), OFFSETS), ValueError, "call y.contiguous()"),
        (lambda: ops.jagged_bmm(wide_stride(5, 3), y, OFFSETS), ValueError, "call x.contiguous()"),
    ]:
        with pytest.raises(error, match=re.escape(message)):
            call()


@pytest.mark.parametrize(
    ("op", "dense", "shape"),
    [
        ("dense_add", torch.randn(2, 4, 3), "[B, N, ...] = [3, any, 3], got [2, 4, 3]"),
        ("dense_add", torch.randn(3, 4, 2), "[B, N, ...] = [3, any, 3], got [3, 4, 2]"),
        ("dense_add", torch.randn(3, 3), "[B, N, ...] = [3, any, 3], got [3, 3]"),
        ("padded_add", torch.randn(1, 4, 3), "[B, N, ...] = [3, any, 3], got [1, 4, 3]"),
        ("padded_add", torch.randn(3, 4), "[B, N, ...] = [3, any, 3], got [3, 4]"),
        ("row_add", torch.randn(3, 1, 3), "[B, ...] = [3, 3], got [3, 1, 3]"),
        ("row_add", torch.randn(4, 3), "[B, ...] = [3, 3], got [4, 3]"),
        ("row_add", torch.randn(3), "[B, ...] = [3, 3], got [3]"),
        ("dense_bmm", torch.randn(2, 3, 6), "[B, K, N] = [3, 3, any], got [2, 3, 6]"),
        ("dense_bmm", torch.randn(3, 5, 6), "[B, K, N] = [3, 3, any], got [3, 5, 6]"),
        ("dense_bmm", torch.randn(3, 6), "[B, K, N] = [3, 3, any], got [3, 6]"),
    ],
)
def test_a_dense_operand_of_another_shape(op: str, dense: torch.Tensor, shape: str) -> None:
    """fbgemm reads out of bounds for some of these."""
    message = f"dense must have shape {shape}: check that it belongs to these values and offsets"
    with pytest.raises(ValueError, match=re.escape(message)):
        getattr(ops, op)(VALUES, OFFSETS, dense)


@pytest.mark.parametrize(
    ("op", "dense"),
    [("dense_add", GRID), ("padded_add", GRID), ("row_add", GRID[:, 0]), ("dense_bmm", MATRICES)],
)
def test_a_dense_operand_of_another_kind(op: str, dense: torch.Tensor) -> None:
    call = getattr(ops, op)
    with pytest.raises(
        TypeError, match=r"dense must have the dtype of values \(torch.float32\), got"
    ):
        call(VALUES, OFFSETS, dense.to(torch.bfloat16))
    with pytest.raises(
        ValueError, match=r"dense must be on the device of values \(cpu\), got meta"
    ):
        call(VALUES, OFFSETS, dense.to("meta"))
    with pytest.raises(TypeError, match=r"dense must be a torch.Tensor, got NoneType"):
        call(VALUES, OFFSETS, None)
    with pytest.raises(ValueError, match=r"dense must have stride 1 .* call dense.contiguous\(\)"):
        call(VALUES, OFFSETS, wide_stride(*dense.shape))


def test_the_bias_of_dense_bmm() -> None:
    with pytest.raises(ValueError, match=r"bias must have shape \[B, N\] = \[3, 6\], got \[6\]"):
        ops.dense_bmm(VALUES, OFFSETS, MATRICES, torch.randn(6))
    with pytest.raises(TypeError, match=r"bias must have the dtype of values"):
        ops.dense_bmm(VALUES, OFFSETS, MATRICES, torch.randn(3, 6).half())
    with pytest.raises(ValueError, match=r"call bias.contiguous\(\)"):
        ops.dense_bmm(VALUES, OFFSETS, MATRICES, wide_stride(3, 6))


LIMITS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda n: ops.softmax(VALUES, OFFSETS, n),
    "dense_bmm": lambda n: ops.dense_bmm(VALUES, OFFSETS, MATRICES, max_length=n),
    "jagged_bmm": lambda n: ops.jagged_bmm(VALUES, VALUES, OFFSETS, n),
    "to_padded": lambda n: ops.to_padded(VALUES, OFFSETS, n),
    "from_padded": lambda n: ops.from_padded(GRID, OFFSETS, n),
}


@pytest.mark.parametrize("op", LIMITS)
def test_limits(op: str) -> None:
    name = "total" if op == "from_padded" else "max_length"
    with pytest.raises(ValueError, match=f"{name} must not be negative, got -1: 0 is the smallest"):
        LIMITS[op](-1)
    for value in (torch.tensor(3), 3.0, True, "3"):
        kind = type(value).__name__
        with pytest.raises(TypeError, match=f"{name} must be a Python int known .*, got {kind}"):
            LIMITS[op](value)
    if op in ("to_padded", "from_padded"):
        with pytest.raises(TypeError, match=f"{name} must be a Python int known .* NoneType"):
            LIMITS[op](None)


def test_a_numpy_integer_is_an_integer() -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is optional")
    assert ops.to_padded(VALUES, OFFSETS, numpy.int64(4)).shape == (3, 4, 3)


@pytest.mark.parametrize("op", ["layer_norm", "token_layer_norm"])
def test_parameters_of_the_norms(op: str) -> None:
    def call(**options: Any) -> None:
        getattr(ops, op)(VALUES, offsets=OFFSETS, **options)

    with pytest.raises(ValueError, match=r"weight must have shape \[D\] = \[3\], got \[4\]"):
        call(weight=torch.ones(4))
    with pytest.raises(ValueError, match=r"bias must have shape \[D\] = \[3\], got \[1, 3\]"):
        call(bias=torch.ones(1, 3))
    with pytest.raises(
        TypeError, match=r"weight must have the dtype of values .* got torch.float16"
    ):
        call(weight=torch.ones(3).half())
    for name in ("weight", "bias"):
        with pytest.raises(
            TypeError, match=rf"{name} .* \(torch.float64\), got torch.float32: conv"
        ):
            getattr(ops, op)(VALUES.double(), offsets=OFFSETS, **{name: torch.ones(3)})
        with pytest.raises(
            TypeError, match=r"values \(torch.float16\) or float32, got torch.float64"
        ):
            getattr(ops, op)(VALUES.half(), offsets=OFFSETS, **{name: torch.ones(3).double()})
    with pytest.raises(ValueError, match=r"bias must be on the device of values \(cpu\), got meta"):
        call(bias=torch.ones(3, device="meta"))
    with pytest.raises(ValueError, match=r"call weight.contiguous\(\)"):
        call(weight=torch.ones(6)[::2])
    with pytest.raises(TypeError, match=r"weight must be a torch.Tensor, got float"):
        call(weight=1.0)
    with pytest.raises(ValueError, match=r"eps must not be negative, got -1\.0"):
        call(eps=-1.0)
    with pytest.raises(ValueError, match="eps must be finite, got nan"):
        call(eps=float("nan"))
    for eps in (None, "1e-5", torch.tensor(1e-5)):
        with pytest.raises(TypeError, match="eps must be a Python number, got"):
            call(eps=eps)
    with pytest.raises(TypeError, match=r"bias must have the dtype of weight \(torch.float32\)"):
        getattr(ops, op)(
            VALUES.half(), offsets=OFFSETS, weight=torch.ones(3), bias=torch.ones(3).half()
        )


def test_a_jagged_tensor_of_another_library() -> None:
    """Its `values` and `offsets` are methods."""
    with pytest.raises(TypeError, match=r"got a method: .* JaggedTensor\.from_rows"):
        ops.sum(VALUES.values, OFFSETS)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"values must be a torch\.Tensor, got Identity$"):
        ops.sum(torch.nn.Identity(), OFFSETS)  # type: ignore[arg-type]


def test_what_is_close_to_a_tensor() -> None:
    """A layer takes a jagged tensor whole, an op its tensors; neither takes lists."""
    with pytest.raises(TypeError, match="got JaggedTensor: pass its values and its offsets"):
        ops.sum(JaggedTensor(VALUES, OFFSETS), OFFSETS)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"got list: convert it with torch\.as_tensor\(offsets\)"):
        ops.sum(VALUES, OFFSETS.tolist())  # type: ignore[arg-type]


def test_a_number_of_numpy_is_a_number() -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is optional")
    assert ops.to_padded(VALUES, OFFSETS, 3, numpy.float32(0.5))[1].eq(0.5).all()
    assert ops.to_padded(VALUES.long(), OFFSETS, 3, numpy.int64(-1))[1].eq(-1).all()
    out = ops.layer_norm(VALUES, OFFSETS, eps=numpy.float32(0.5))
    assert torch.equal(out, ops.layer_norm(VALUES, OFFSETS, eps=0.5))


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "torch.sparse_coo: call": torch.Tensor.to_sparse,
    "torch.sparse_csr: call": torch.Tensor.to_sparse_csr,
    "a nested one: convert it with jagged.interop.nested": lambda x: torch.nested.as_nested_tensor(
        [x, x], layout=torch.jagged
    ),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
@pytest.mark.parametrize("found", LAYOUTS)
def test_layouts_that_no_op_reads(found: str) -> None:
    def message(name: str) -> str:
        return re.escape(f"{name} must be a strided tensor, got {found}")

    change = LAYOUTS[found]
    for call in ON_VALUES.values():
        with pytest.raises(ValueError, match=message("values")):
            call(change(VALUES), OFFSETS)
    with pytest.raises(ValueError, match=message("dense")):
        ops.from_padded(change(GRID[:, 0]), OFFSETS, 5)
    if "coo" in found:  # the others have no strides, or other shapes
        with pytest.raises(ValueError, match=message("dense")):
            ops.row_add(VALUES, OFFSETS, change(GRID[:, 0]))
        with pytest.raises(ValueError, match=message("weight")):
            ops.layer_norm(VALUES, OFFSETS, weight=change(VALUES[0]))


def test_padding_values() -> None:
    integers = VALUES.to(torch.int8)
    for value in (0.5, 128, -129.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"whole number from -128 to 127 .* torch.int8, got"):
            ops.to_padded(integers, OFFSETS, 3, value)
    with pytest.raises(
        ValueError, match=r"whole number from 0 to 1 for values of torch\.bool, got 2"
    ):
        ops.to_padded(integers > 0, OFFSETS, 3, 2)
    with pytest.raises(
        ValueError, match=r"padding_value must be at most 65504\.0 .* got -1000000000\.0"
    ):
        ops.to_padded(VALUES.half(), OFFSETS, 3, -1e9)
    assert ops.to_padded(VALUES.half(), OFFSETS, 3, -torch.inf).min() == -torch.inf
    with pytest.raises(ValueError, match=r"a number that float64 holds, got 9007199254740993"):
        ops.to_padded(VALUES.long(), OFFSETS, 3, 2**53 + 1)
    with pytest.raises(TypeError, match="padding_value must be a Python number, got Tensor"):
        ops.to_padded(VALUES, OFFSETS, 3, torch.tensor(0.0))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="padding_value must be a Python number, got NoneType"):
        ops.to_padded(VALUES, OFFSETS, 3, None)  # type: ignore[arg-type]


def test_the_operand_of_from_padded() -> None:
    for call, error, message in [
        (
            lambda: ops.from_padded(GRID[:2], OFFSETS, 5),
            ValueError,
            "dense must have 3 rows like offsets (of 4 entries), got shape [2, 4, 3]",
        ),
        (
            lambda: ops.from_padded(VALUES[0], OFFSETS, 5),
            ValueError,
            "dense must have at least two dimensions [B, N, ...], got shape [3]",
        ),
        (
            lambda: ops.from_padded(GRID, OFFSETS.to("meta"), 5),
            ValueError,
            "offsets must be on the device of dense (cpu), got meta",
        ),
        (
            lambda: ops.from_padded(GRID.to(torch.complex64), OFFSETS, 5),
            TypeError,
            "dense must be floating point, integer or bool, got torch.complex64: use "
            "torch.view_as_real(dense)",
        ),
        (lambda: ops.from_padded(wide_stride(3, 4, 3), OFFSETS, 5), ValueError, "stride 1"),
        (lambda: ops.from_padded(None, OFFSETS, 5), TypeError, "dense must be a torch.Tensor"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(error, match=re.escape(message)):
            call()


@pytest.mark.parametrize("op", ON_VALUES)
def test_float64_on_a_gpu(op: str, device: torch.device) -> None:
    if device.type != "cuda":
        pytest.skip("the CPU computes in float64")
    with pytest.raises(TypeError, match="values is float64 on a GPU, which no kernel supports"):
        ON_VALUES[op](VALUES.double().to(device), OFFSETS.to(device))
