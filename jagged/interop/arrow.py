"""Arrow list arrays: what Parquet columns of lists are read into."""

from typing import Any

import torch
from torch import Tensor

from jagged.layout import JaggedTensor

_CAST = (
    "lists of times, of no type (all empty) and of a fixed size become lists of numbers with "
    "array.cast(pyarrow.list_(pyarrow.int64()))"
)


def from_arrow(array: Any) -> JaggedTensor:
    """A jagged tensor on the CPU of an Arrow array of lists; values and offsets are shared.

    Args:
        array: `pyarrow.ListArray` (int32 offsets), `LargeListArray` (int64) or a `ChunkedArray` of
            them, of numbers or of `FixedSizeList`s of numbers (then values are [T, D]). Of a
            slice only its part is taken. Bool values and several chunks are copied.

    Returns:
        A jagged tensor whose `max_length` is known.

    Raises:
        TypeError: not an array of lists of numbers.
        ValueError: a null list or a null in the values, which no jagged tensor can hold.
    """
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # older versions keep a chunked array of one chunk
            array = array.chunk(0)
    if not (isinstance(array, pa.Array) and isinstance(array, (pa.ListArray, pa.LargeListArray))):
        kind = getattr(array, "type", type(array).__name__)
        raise TypeError(f"array must be an Arrow array of lists, got {kind}: {_CAST}")
    _refuse_nulls("array", array)
    offsets = _tensor(array.offsets)
    if len(array) == 0:
        offsets = offsets.new_zeros(1)
    first, last = int(offsets[0]), int(offsets[-1])
    child = array.values.slice(first, last - first)
    _refuse_nulls("the values of array", child)
    width = None
    if pa.types.is_fixed_size_list(child.type):
        width = child.type.list_size
        child = child.flatten()
        _refuse_nulls("the values of array", child)
    if not (pa.types.is_primitive(child.type) and not pa.types.is_temporal(child.type)):
        raise TypeError(f"array must hold lists of numbers, got {array.type}: {_CAST}")
    values = _tensor(child)
    if width is not None:
        values = values.reshape(-1, width)
    if first != 0:
        offsets = offsets - first
    longest = int((offsets[1:] - offsets[:-1]).max()) if len(array) else 0
    return JaggedTensor(values, offsets, longest)


def to_arrow(x: JaggedTensor) -> Any:
    """An Arrow array that shares memory: `ListArray` for int32 offsets, `LargeListArray` for int64.

    Values [T] become lists of numbers, [T, D] lists of `FixedSizeList`s. The tensor must be on the
    CPU and detached; the capacity tail is left out.

    Raises:
        ValueError: on a GPU, with gradients, or with more than two dimensions.
        TypeError: bfloat16, for which Arrow has no type.
    """
    import pyarrow as pa

    values = x.values
    if values.device.type != "cpu" or values.requires_grad:
        raise ValueError(
            "x must be a detached CPU tensor for Arrow, got one "
            f"{'with gradients' if values.requires_grad else 'on ' + str(values.device)}: "
            "call x.with_values(x.values.detach()).to('cpu')"
        )
    if values.ndim > 2:
        raise ValueError(f"x must have values [T] or [T, D], got shape {list(values.shape)}")
    if values.dtype == torch.bfloat16:
        raise TypeError("Arrow has no bfloat16: convert with x.to(dtype=torch.float32)")
    values = values[: int(x.offsets[-1])]
    child = pa.array(values.contiguous().reshape(-1).numpy())
    if values.ndim == 2:
        child = pa.FixedSizeListArray.from_arrays(child, values.shape[1])
    kind = pa.ListArray if x.offsets.dtype == torch.int32 else pa.LargeListArray
    return kind.from_arrays(pa.array(x.offsets.numpy()), child)


def _refuse_nulls(name: str, array: Any) -> None:
    if array.null_count:
        raise ValueError(
            f"{name} must hold no nulls, got {array.null_count}: "
            "fill or drop them first (pyarrow.compute.fill_null, drop_null)"
        )


def _tensor(array: Any) -> Tensor:
    """The memory of a primitive Arrow array as a tensor."""
    import warnings

    import pyarrow as pa

    if pa.types.is_boolean(array.type):  # one bit a value: cannot be shared
        return torch.tensor(array.to_numpy(zero_copy_only=False))
    with warnings.catch_warnings():
        # Arrow memory is read-only and this library never writes to its inputs.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array.to_numpy(zero_copy_only=True))
