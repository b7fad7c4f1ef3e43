"""`torch.nested` tensors in the jagged layout (NJT)."""

from typing import Any

import torch
from torch import Tensor

from jagged._rows import as_offsets, gather_rows
from jagged.layout import JaggedTensor


def from_nested(nested: Tensor, *, rebase: bool = True) -> JaggedTensor:
    """A jagged tensor of a nested one [B, ragged, ...]; gradients flow through.

    The values are shared, not copied, and the largest length is passed on if the nested tensor
    knows it. A nested tensor may have rows that do not start at 0, and holes between rows
    (`lengths()`), which a jagged tensor cannot: the first is cut off, and rows with holes are
    copied together. Both need a number from the device, for which a GPU is waited for.

    Args:
        nested: layout torch.jagged, ragged in dimension 1.
        rebase: False promises that the offsets start with 0; then nothing is read.

    Raises:
        TypeError: not a nested tensor of the jagged layout.
        ValueError: ragged in another dimension than 1.
    """
    if not (isinstance(nested, Tensor) and nested.is_nested and nested.layout == torch.jagged):
        raise TypeError(
            f"nested must be a nested tensor with layout torch.jagged, got {type(nested).__name__}"
        )
    source: Any = nested  # torch's type stubs do not know what a nested tensor has besides
    ragged = getattr(source, "_ragged_idx", 1)
    if ragged != 1:
        raise ValueError(
            f"nested must be ragged in dimension 1, got dimension {ragged}: transpose it back first"
        )
    values, offsets, lengths = source.values(), source.offsets(), source.lengths()
    longest: int | None = getattr(source, "_maybe_max_seqlen", None)
    if offsets.dtype not in (torch.int32, torch.int64):
        offsets = offsets.to(torch.int64)
    if lengths is not None:
        starts = offsets[:-1] if offsets.shape[0] > lengths.shape[0] else offsets
        packed = as_offsets(lengths, values.shape[0]).to(offsets.dtype)
        total = int(packed[-1])
        return JaggedTensor(gather_rows(values, starts, packed, total), packed, longest)
    if rebase and (first := int(offsets[0])) != 0:
        values, offsets = values[first:], offsets - first
    return JaggedTensor(values, offsets, longest)


def to_nested(x: JaggedTensor, *, trim: bool = True) -> Tensor:
    """A nested tensor [B, ragged, ...] that shares values and the offsets object; keeps gradients.

    A nested tensor has no capacity tail: what lies past `offsets[-1]` is cut off, for which a GPU
    is waited for. `trim=False` promises that there is none; then nothing is read.
    """
    values = x.values
    if trim and (total := int(x.offsets[-1])) != values.shape[0]:
        values = values[:total]
    nested: Tensor = torch.nested.nested_tensor_from_jagged(
        values, x.offsets, max_seqlen=x.max_length
    )
    return nested
