"""What several layers need: the capacity tail, positions in a row, autocast, the longest row.

A layer's jagged result holds 0 in the capacity tail, whatever the input held there. Parameters
multiply the values, and 0 * NaN is NaN in their gradients, so a layer that multiplies plainly
zeroes the tail of its input too.
"""

import torch
from torch import Tensor

from jagged import checks
from jagged.layout import JaggedTensor


def check_jagged(name: str, value: object) -> None:
    """`value` is what layers take.

    Raises:
        TypeError: a plain tensor, a pair of tensors, another library's jagged tensor, ...
    """
    if isinstance(value, JaggedTensor):
        return
    nested = isinstance(value, Tensor) and value.is_nested
    found = "a nested tensor" if nested else f"{type(value).__module__}.{type(value).__name__}"
    raise TypeError(
        f"{name} must be a jagged.JaggedTensor, got {found.removeprefix('builtins.')}: build one "
        "with JaggedTensor(values, offsets) or JaggedTensor.from_padded(dense, lengths), or "
        "convert one with jagged.interop.nested.from_nested or interop.torchrec.from_torchrec"
    )


def check_values(values: Tensor, expected: tuple[int | None, ...], meaning: str) -> None:
    """The values of a layer's input have the sizes that it was built for."""
    advice = "build the layer for these sizes, or project the values first"
    checks.shape("x.values", values, expected, meaning, advice)


def check_same_rows(name: str, value: JaggedTensor, other_name: str, other: JaggedTensor) -> None:
    """Two jagged operands have as many rows; that these are as long, only the device knows."""
    if value.num_rows != other.num_rows:
        raise ValueError(
            f"{name} must have as many rows as {other_name} ({other.num_rows}), got "
            f"{value.num_rows}: check that the two belong together"
        )


def is_element(x: JaggedTensor) -> Tensor:
    """[T] bool: False for the capacity tail. Does not wait for the device."""
    return torch.arange(x.values.shape[0], device=x.offsets.device) < x.offsets[-1]


def zero_tail(values: Tensor, valid: Tensor) -> Tensor:
    """`values` [T, ...] with 0 where `valid` [T] is False; the gradient is 0 there as well."""
    return torch.where(over_trailing(valid, values), values, 0)


def over_trailing(per_element: Tensor, values: Tensor) -> Tensor:
    """`per_element` [T] shaped so that it broadcasts over the trailing dimensions of `values`."""
    return per_element.reshape(per_element.shape + (1,) * (values.ndim - 1))


def spread(per_row: Tensor, row: Tensor) -> Tensor:
    """`per_row` [B] read at each element's row [T], int64; 0 for the capacity tail (row B)."""
    return torch.nn.functional.pad(per_row.to(torch.int64), (0, 1))[row]


def history_lengths(x: JaggedTensor, num_targets: Tensor | None) -> Tensor:
    """[B] int64: the row lengths without their targets, of which a row has at most its length."""
    lengths = x.lengths().to(torch.int64)
    if num_targets is None:
        return lengths
    return torch.minimum(lengths - num_targets.to(torch.int64), lengths).clamp(min=0)


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype of the autocast region around the call, or None outside of one."""
    if device.type != "meta" and torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    return None


def to_autocast(value: Tensor) -> Tensor:
    """Cast an operand of a matrix product or of attention as autocast casts those of torch.

    The ops of this library have no autocast rule. float64 stays what it is, as in torch.
    """
    dtype = autocast_dtype(value.device)
    if dtype is None or not value.is_floating_point() or value.dtype == torch.float64:
        return value
    return value.to(dtype)


def promote(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Under autocast, the two operands of a sum in the wider of their dtypes; else unchanged."""
    if autocast_dtype(left.device) is None:
        return left, right
    dtype = torch.promote_types(left.dtype, right.dtype)
    return left.to(dtype), right.to(dtype)


def longest(x: JaggedTensor, configured: int | None, where: str) -> int:
    """An upper bound of the row lengths that the host knows: the tensor's, else the configured.

    Raises:
        ValueError: neither is known.
    """
    if x.max_length is not None:
        return x.max_length
    if configured is not None:
        return configured
    raise ValueError(
        "max_length must be known, got a jagged tensor without it: give it to the constructor of "
        f"JaggedTensor, or once for all to {where}"
    )
