"""torchrec's `JaggedTensor`, `KeyedJaggedTensor` and dicts of them."""

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from jagged._rows import as_offsets
from jagged.layout import JaggedTensor

Converted: TypeAlias = "JaggedTensor | dict[str, JaggedTensor]"


def from_torchrec(source: Any, *, max_length: int | None = None) -> Converted:
    """Take over a torchrec tensor; values, offsets and weights are shared, gradients flow.

    Args:
        source: a torchrec `JaggedTensor`; a `KeyedJaggedTensor`; or a mapping of names to torchrec
            `JaggedTensor`s, as `EmbeddingCollection` returns.
        max_length: an upper bound of all row lengths that the host knows.

    Returns:
        A jagged tensor, or for the last two a dict of them, in the order of the keys. The keys of
        one source may have different numbers of rows (per-key batch sizes); `inverse_indices` are
        not applied: `names, index = source.inverse_indices()`, and the rows of `name` for all
        examples are `pooled[name][index[names.index(name)]]`. Lengths of any integer type are
        taken; offsets that exist are used as they are (int32 or int64), else they are computed from
        the lengths. An empty batch, which torchrec writes with offsets of no entry, has offsets
        [0]. Nothing waits for a GPU, but for a `KeyedJaggedTensor` whose lengths per key were never
        read (`sync()` not called): these are read then. Under torch.fx, with which torchrec's train
        pipelines trace a model, the call is one node.

    Raises:
        TypeError: none of these types.
    """
    from torchrec.sparse.jagged_tensor import JaggedTensor as TorchrecJagged
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

    if isinstance(source, torch.fx.Proxy):
        call = ("call_function", from_torchrec, (source,), {"max_length": max_length})
        return cast("Converted", source.tracer.create_proxy(*call))
    if isinstance(source, KeyedJaggedTensor):
        return _from_keyed(source, max_length)
    if isinstance(source, TorchrecJagged):
        return _from_one(source, max_length)
    if isinstance(source, Mapping):
        for name, one in source.items():
            if not isinstance(one, TorchrecJagged):
                raise _wrong_type(f"{type(one).__name__} under {name!r}")
        return {name: _from_one(one, max_length) for name, one in source.items()}
    raise _wrong_type(type(source).__name__)


def to_torchrec(x: JaggedTensor | Mapping[str, JaggedTensor]) -> Any:
    """torchrec's `JaggedTensor` (for a mapping, a dict of them) on the same memory.

    The offsets are the same object, and weights travel along.
    """
    from torchrec.sparse.jagged_tensor import JaggedTensor as TorchrecJagged

    if not isinstance(x, (JaggedTensor, Mapping)):
        raise TypeError(f"x must be a JaggedTensor or a mapping of them, got {type(x).__name__}")
    if isinstance(x, JaggedTensor):
        return TorchrecJagged(values=x.values, offsets=x.offsets, weights=x.weights)
    return {name: to_torchrec(one) for name, one in x.items()}


def to_keyed(features: Mapping[str, JaggedTensor], *, trim: bool = True) -> Any:
    """A torchrec `KeyedJaggedTensor` of features [T_f] with the same number of rows; copies.

    int32 lengths if every feature has int32 offsets, else int64. Weights are kept if every
    feature has them. There is no room for a capacity tail: the tails are cut off, for which a GPU
    is waited for. `trim=False` promises that there are none; then nothing is read.

    Raises:
        ValueError: no feature, or features with different numbers of rows.
        TypeError: features of different dtypes, which have one `values` there.
    """
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

    if not isinstance(features, Mapping):
        raise TypeError(
            f"features must be a mapping of JaggedTensors, got {type(features).__name__}"
        )
    if not features:
        raise ValueError("features must hold at least one feature, got none")
    batches = {name: len(one) for name, one in features.items()}
    if len(set(batches.values())) != 1:
        raise ValueError(f"features must have the same number of rows, got {batches}")
    joined = JaggedTensor.concat_batch(list(features.values()))
    narrow = all(one.offsets.dtype == torch.int32 for one in features.values())
    lengths = joined.lengths().to(torch.int32 if narrow else torch.int64)
    total = int(joined.offsets[-1]) if trim else joined.values.shape[0]
    weights = None if joined.weights is None else joined.weights[:total]
    return KeyedJaggedTensor(
        keys=list(features), values=joined.values[:total], lengths=lengths, weights=weights
    )


def _wrong_type(got: str) -> TypeError:
    return TypeError(
        "source must be a torchrec JaggedTensor, KeyedJaggedTensor or a mapping of JaggedTensors, "
        f"got {got}"
    )


def _offsets(offsets: Tensor | None, lengths: Tensor | None, values: Tensor) -> Tensor:
    """Offsets [B + 1] from whichever of the two torchrec has."""
    if offsets is not None and offsets.numel() > 0:
        if offsets.dtype in (torch.int32, torch.int64):
            return offsets
        return offsets.to(torch.int64)
    if lengths is not None and lengths.numel() > 0:
        return as_offsets(lengths, values.shape[0])
    source = offsets if offsets is not None else lengths
    narrow = source is not None and source.dtype == torch.int32
    return torch.zeros(1, dtype=torch.int32 if narrow else torch.int64, device=values.device)


def _from_one(source: Any, max_length: int | None) -> JaggedTensor:
    values = source.values()
    offsets = _offsets(source.offsets_or_none(), source.lengths_or_none(), values)
    return JaggedTensor(values, offsets, max_length, source.weights_or_none())


def _from_keyed(source: Any, max_length: int | None) -> dict[str, JaggedTensor]:
    keys: list[str] = source.keys()
    lengths, values, weights = source.lengths(), source.values(), source.weights_or_none()
    if lengths.numel() == 0:
        empty = _offsets(None, lengths, values)
        return {
            key: JaggedTensor(
                values[:0], empty, max_length, None if weights is None else weights[:0]
            )
            for key in keys
        }
    per_key: list[int] = source.length_per_key()
    rows: list[int] = source.stride_per_key()
    total = sum(per_key)  # what lies behind belongs to no key
    pieces = zip(keys, values[:total].split(per_key), lengths.split(rows), strict=True)
    # Bounded by all values, whose number torch.compile knows, where it does not know a key's.
    parts = {key: (one, as_offsets(n, values.shape[0])) for key, one, n in pieces}
    carried = [None] * len(keys) if weights is None else weights[:total].split(per_key)
    return {
        key: JaggedTensor(one, offsets, max_length, weight)
        for (key, (one, offsets)), weight in zip(parts.items(), carried, strict=True)
    }
