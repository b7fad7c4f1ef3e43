"""Host-side checks of arguments, one function a rule.

They look at metadata alone (rank, shape, dtype, device, stride), never at contents, so they cost
about a microsecond and never wait for a device. Contents are checked by
`JaggedTensor.validate()`. Every message names the argument, the rule, what was received and what
to do.
"""

import inspect
import math

import torch
from torch import Tensor

OFFSETS_DTYPES = (torch.int32, torch.int64)
GPU_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_STRIDED = torch.strided  # looked up once


def shape_of(tensor: Tensor) -> str:
    """The shape as it is written in messages: `[3, 4]`."""
    return str(list(tensor.shape))


def tensor(name: str, value: object) -> None:
    """`value` is a tensor."""
    if not isinstance(value, Tensor):
        found = type(value).__name__
        if inspect.ismethod(value) or inspect.isbuiltin(value):
            # `x.values` of another library's jagged tensor, or of a plain one.
            found = "a method: layers take a JaggedTensor, as of JaggedTensor.from_rows or interop"
        elif isinstance(value, (list, tuple)) or hasattr(value, "__array__"):
            found += f": convert it with torch.as_tensor({name})"
        elif hasattr(value, "values") and hasattr(value, "offsets"):
            found += ": pass its values and its offsets"
        raise TypeError(f"{name} must be a torch.Tensor, got {found}")


def offsets(offsets: Tensor, values: Tensor, name: str = "values") -> None:
    """`offsets` is a legal offsets vector for `values` as far as the host can see."""
    tensor("offsets", offsets)
    if offsets.dtype not in OFFSETS_DTYPES:
        raise TypeError(
            f"offsets must be int32 or int64, got {offsets.dtype}: "
            "convert with offsets.to(torch.int64)"
        )
    if offsets.ndim != 1:
        raise ValueError(
            f"offsets must be one-dimensional [B + 1], got shape {shape_of(offsets)}: "
            "one jagged dimension is supported, nested ones are flattened first"
        )
    if offsets.numel() == 0:
        raise ValueError(
            "offsets must have B + 1 entries and start with 0, got an empty tensor: "
            "a batch of no rows has offsets [0]"
        )
    if offsets.device != values.device:
        raise ValueError(
            f"offsets must be on the device of {name} ({values.device}), got {offsets.device}: "
            f"move them with offsets.to({name}.device)"
        )


def elements(name: str, values: Tensor) -> None:
    """`values` is a tensor [T, ...]."""
    tensor(name, values)
    if values.ndim == 0:
        raise ValueError(f"{name} must have at least one dimension [T, ...], got a scalar")


def strided(name: str, value: Tensor) -> None:
    """`value` lies in memory as ops read it: neither sparse nor nested."""
    if value.layout is not _STRIDED or value.is_nested:  # of nested ones some say strided
        found, way = str(value.layout), f"call {name}.to_dense()"
        if value.is_nested:
            found, way = "a nested one", "convert it with jagged.interop.nested.from_nested"
        raise ValueError(f"{name} must be a strided tensor, got {found}: {way}")


def ragged(name: str, values: Tensor, ndim: int | None = None) -> None:
    """`values` has a ragged dimension (`ndim` dimensions in all, if given) and unit stride last."""
    if ndim is None:
        elements(name, values)
        strided(name, values)
    else:
        tensor(name, values)
        strided(name, values)
        if values.ndim != ndim:
            raise ValueError(
                f"{name} must have {ndim} dimensions, got shape {shape_of(values)}: "
                "reshape it first"
            )
    last_stride(name, values)


def jagged(values: Tensor, offsets_: Tensor, ndim: int | None = None) -> None:
    """`values` and `offsets` are a jagged tensor that the ops compute on."""
    ragged("values", values, ndim)
    floating("values", values)
    offsets(offsets_, values)


def padded(name: str, value: Tensor) -> None:
    """`value` is [B, N, ...] with unit stride last."""
    tensor(name, value)
    strided(name, value)
    if value.ndim < 2:
        raise ValueError(
            f"{name} must have at least two dimensions [B, N, ...], got shape {shape_of(value)}"
        )
    last_stride(name, value)


def last_stride(name: str, value: Tensor) -> None:
    """The last dimension of `value` is laid out without gaps."""
    if value.stride()[-1] != 1 and value.shape[-1] != 1 and value.numel() > 0:
        strided(name, value)  # the strides of a sparse tensor are 0
        raise ValueError(
            f"{name} must have stride 1 in its last dimension, got strides {list(value.stride())} "
            f"for shape {shape_of(value)}: call {name}.contiguous()"
        )


def floating(name: str, value: Tensor) -> None:
    """`value` has a dtype that the ops compute in."""
    if value.dtype in GPU_DTYPES:
        return
    if value.dtype != torch.float64:
        raise TypeError(
            f"{name} must be float32, bfloat16, float16 or (on the CPU) float64, "
            f"got {value.dtype}: convert with {name}.float()"
        )
    if value.is_cuda:
        raise TypeError(f"{name} is float64 on a GPU, which no kernel supports: use float32 there")


def number(name: str, value: Tensor) -> None:
    """`value` has a dtype that the ops move: one they compute in, an integer or bool."""
    if value.is_floating_point():
        floating(name, value)
    elif value.is_complex():
        raise TypeError(
            f"{name} must be floating point, integer or bool, got {value.dtype}: "
            f"use torch.view_as_real({name})"
        )


def integers(name: str, value: Tensor, *, bools: bool = False) -> None:
    """`value` has an integer dtype, or bool where that is a number too."""
    dtype = value.dtype
    if dtype.is_floating_point or dtype.is_complex or (dtype == torch.bool and not bools):
        raise TypeError(
            f"{name} must be integers, got {dtype}: convert with {name}.to(torch.int64)"
        )


def same_dtype(name: str, value: Tensor, other_name: str, other: Tensor) -> None:
    """Two operands have one dtype: nothing is promoted behind the caller's back."""
    if value.dtype != other.dtype:
        raise TypeError(
            f"{name} must have the dtype of {other_name} ({other.dtype}), got {value.dtype}: "
            f"convert with {name}.to({other_name}.dtype)"
        )


def same_device(name: str, value: Tensor, other_name: str, other: Tensor) -> None:
    """Two operands are on one device."""
    if value.device != other.device:
        raise ValueError(
            f"{name} must be on the device of {other_name} ({other.device}), got {value.device}: "
            f"move it with {name}.to({other_name}.device)"
        )


def alike(name: str, value: Tensor, other_name: str, other: Tensor) -> None:
    """`value` can be concatenated with `other`: trailing shape, dtype and device are the same."""
    if value.shape[1:] != other.shape[1:]:
        raise ValueError(
            f"{name} must have the trailing shape of {other_name} {list(other.shape[1:])}, "
            f"got shape {shape_of(value)}"
        )
    same_dtype(name, value, other_name, other)
    same_device(name, value, other_name, other)


def operand(name: str, value: Tensor, other_name: str, other: Tensor) -> None:
    """`value` is a second operand: dtype and device of `other`, unit stride last."""
    if not (
        isinstance(value, Tensor) and value.dtype == other.dtype and value.device == other.device
    ):  # one by one, to say which
        tensor(name, value)
        same_device(name, value, other_name, other)
        same_dtype(name, value, other_name, other)
    if value.ndim > 0:
        last_stride(name, value)


def shape(
    name: str,
    value: Tensor,
    expected: tuple[int | None, ...],
    meaning: str,
    advice: str = "check that it belongs to these values and offsets",
) -> None:
    """`value` has the expected shape; None accepts any size in its place."""
    if value.shape == expected:  # quick where all sizes are given
        return
    if value.ndim == len(expected):
        for got, want in zip(value.shape, expected, strict=True):
            if want is not None and got != want:
                break
        else:
            return
    wanted = "[" + ", ".join("any" if size is None else str(size) for size in expected) + "]"
    raise ValueError(
        f"{name} must have shape {meaning} = {wanted}, got {shape_of(value)}: {advice}"
    )


def rows(name: str, value: Tensor, offsets: Tensor) -> None:
    """`value` [B, ...] has as many rows as `offsets`."""
    expected = offsets.shape[0] - 1
    if value.shape[0] != expected:
        raise ValueError(
            f"{name} must have {expected} rows like offsets (of {expected + 1} entries), got shape "
            f"{shape_of(value)}: check that the two belong together"
        )


def length(name: str, value: object) -> None:
    """`value` is a host integer that is not negative (0 is legal)."""
    if type(value) is int and value >= 0:  # quick for the usual
        return
    if isinstance(value, (bool, Tensor)) or not (
        isinstance(value, int) or hasattr(value, "__index__")
    ):
        raise TypeError(
            f"{name} must be a Python int known on the host, got {type(value).__name__}: "
            "reading it from the device would stall every call"
        )
    if value < 0:  # type: ignore[operator]
        raise ValueError(f"{name} must not be negative, got {value}: 0 is the smallest legal bound")


def optional_length(name: str, value: object) -> None:
    """`value` is a host integer that is not negative, or None."""
    if value is not None:
        length(name, value)


def padding_value(value: float, values: Tensor) -> None:
    """`padding_value` is a number that the dtype of `values` holds."""
    if type(value) is float and value == 0:  # the usual, and every dtype holds it
        return
    number_of_host("padding_value", value)
    if values.dtype.is_floating_point:
        most = torch.finfo(values.dtype).max
        if most < abs(value) < torch.inf:
            raise ValueError(
                f"padding_value must be at most {most} for values of {values.dtype}, or infinite, "
                f"got {value}"
            )
        return
    least, most = _integer_range(values.dtype)
    if not (least <= value <= most and value == int(value)):
        raise ValueError(
            f"padding_value must be a whole number from {least} to {most} for values of "
            f"{values.dtype}, got {value}"
        )
    if int(float(value)) != value:
        raise ValueError(
            f"padding_value must be a number that float64 holds, got {value}: it is passed as one"
        )


def _integer_range(dtype: torch.dtype) -> tuple[int, int]:
    if dtype == torch.bool:
        return 0, 1
    info = torch.iinfo(dtype)
    return info.min, info.max


def parameter_dtype(name: str, value: Tensor, other_name: str, other: Tensor) -> None:
    """`value` has the dtype of `other`, or float32 beside 16-bit numbers."""
    is_narrow = other.dtype.itemsize == 2
    if value.dtype != other.dtype and not (is_narrow and value.dtype == torch.float32):
        raise TypeError(
            f"{name} must have the dtype of {other_name} ({other.dtype})"
            f"{' or float32' if is_narrow else ''}, got {value.dtype}: "
            f"convert with {name}.to({other_name}.dtype)"
        )


def norm_parameters(
    values: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    *,
    by_head: bool = False,
) -> None:
    """`weight` and `bias` of a layer norm are [D] (`by_head`: [H] for values [T, H, V]), in the
    dtype of the values, or in float32 beside 16-bit values."""
    size, meaning = (values.shape[1], "[H]") if by_head else (values.shape[-1], "[D]")
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is None:
            continue
        tensor(name, parameter)
        if parameter.device != values.device:
            same_device(name, parameter, "values", values)
        if parameter.dtype != values.dtype:
            parameter_dtype(name, parameter, "values", values)
        shape(name, parameter, (size,), meaning)
        last_stride(name, parameter)
    if weight is not None and bias is not None:
        same_dtype("bias", bias, "weight", weight)
    epsilon(eps)


def is_number(value: object) -> bool:
    """Whether `value` is a real Python or numpy number; a bool is one."""
    if isinstance(value, (int, float)):  # Dynamo can answer this for what it traces, not the rest
        return True
    return not isinstance(value, Tensor) and hasattr(value, "__float__")


def number_of_host(name: str, value: object) -> None:
    """`value` is a real number of the host."""
    if not is_number(value):
        raise TypeError(
            f"{name} must be a Python number, got {type(value).__name__}: "
            "reading it from the device would stall every call"
        )


def finite(name: str, value: float) -> None:
    """`value` is a number of the host, neither infinite nor NaN."""
    number_of_host(name, value)
    if isinstance(value, bool):
        raise TypeError(f"{name} must be a Python number, got bool")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")


def epsilon(value: float) -> None:
    """`value` is what a norm can add to a variance: finite, not negative."""
    if type(value) is float and 0 <= value < math.inf:  # quick for the usual
        return
    finite("eps", value)
    if value < 0:
        raise ValueError(f"eps must not be negative, got {value}")


def probability(name: str, value: float) -> None:
    """`value` is a number in [0, 1)."""
    number_of_host(name, value)
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be in [0, 1), got {value}")


def seed(value: Tensor, values: Tensor) -> None:
    """`value` is one int64 beside `values`: a tensor, so that nobody waits for the device."""
    tensor("seed", value)
    same_device("seed", value, "values", values)
    if value.dtype != torch.int64:
        raise TypeError(f"seed must be int64, got {value.dtype}: convert with seed.to(torch.int64)")
    shape("seed", value, (1,), "[1]")
