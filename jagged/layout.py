"""`JaggedTensor`: rows of different lengths as one `values` tensor and an `offsets` vector."""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from jagged import checks, ops
from jagged._rows import as_index, as_offsets, gather_rows, read_last, row_ids
from jagged._text import describe


@dataclass(frozen=True, eq=False, repr=False)
class JaggedTensor:
    """B rows of different lengths: row i is `values[offsets[i]:offsets[i + 1]]`.

    Symbols: B rows, T = offsets[-1] elements in all rows, T_cap >= T the capacity of `values`.

    Args:
        values: [T_cap, ...]; those past T, the capacity tail, belong to no row, are never read and
            may hold anything.
        offsets: [B + 1], int32 or int64, on the device of `values`; starts with 0, never decreases.
        max_length: an upper bound of the row lengths that the host knows, or None. 0 is legal.
        weights: [T_cap], any dtype: one number an element that travels along (ids, weights).

    The record is immutable and a pytree node: its leaves are values, offsets and, if there are any,
    weights. `max_length` is part of the structure, so that `torch.export` exports for one bound:
    give it the model's, and the same to each batch (`dataclasses.replace(x, max_length=N)`).
    Building one checks metadata only; `validate()` checks the contents. Two jagged tensors are
    compatible when their offsets are equal, whether or not they are one object. Constructors and
    methods raise `TypeError` for a wrong type or dtype, and `ValueError` for a wrong shape, device
    or bound.
    """

    values: Tensor
    offsets: Tensor
    max_length: int | None = None
    weights: Tensor | None = None

    def __post_init__(self) -> None:
        checks.elements("values", self.values)
        checks.strided("values", self.values)
        checks.offsets(self.offsets, self.values)
        checks.optional_length("max_length", self.max_length)
        bound = self.max_length
        if type(bound) is not int and not (bound is None or isinstance(bound, torch.SymInt)):
            object.__setattr__(self, "max_length", operator.index(bound))  # a numpy integer
        if self.weights is not None:
            checks.tensor("weights", self.weights)
            checks.strided("weights", self.weights)
            checks.same_device("weights", self.weights, "values", self.values)
            checks.shape("weights", self.weights, (self.values.shape[0],), "[T]")

    # Constructors -----------------------------------------------------------------------------

    @classmethod
    def from_lengths(
        cls,
        values: Tensor,
        lengths: Tensor,
        *,
        max_length: int | None = None,
        weights: Tensor | None = None,
    ) -> "JaggedTensor":
        """From `values` [T_cap, ...] and the row lengths [B] (any integer dtype), on one device.

        int32 lengths give int32 offsets (while T_cap fits), all others int64.
        """
        checks.elements("values", values)
        offsets = as_offsets(lengths, values.shape[0])
        checks.same_device("lengths", lengths, "values", values)
        return cls(values, offsets, max_length, weights)

    @classmethod
    def from_rows(
        cls, rows: Iterable[Tensor], *, offsets_dtype: torch.dtype = torch.int64
    ) -> "JaggedTensor":
        """From a list of tensors [n_i, ...] of one dtype and device; `max_length` is known then.

        For lists of numbers and numpy arrays see `jagged.data.collate`.
        """
        rows = list(rows)
        if len(rows) == 0:
            raise ValueError(
                "rows must hold at least one tensor, which gives the dtype and trailing shape: "
                "build an empty batch with JaggedTensor(values[:0], offsets) and offsets [0]"
            )
        first = rows[0]
        for index, row in enumerate(rows):
            checks.elements(f"rows[{index}]", row)
            checks.alike(f"rows[{index}]", row, "rows[0]", first)
        sizes = [row.shape[0] for row in rows]
        offsets = torch.tensor([0, *sizes], dtype=torch.int64).cumsum(0).to(offsets_dtype)
        return cls(torch.cat(rows), offsets.to(first.device), max(sizes))

    @classmethod
    def from_padded(
        cls, dense: Tensor, lengths_or_mask: Tensor, *, total: int | None = None
    ) -> "JaggedTensor":
        """From `dense` [B, N, ...] and the row lengths [B] (integers) or a mask [B, N] (bool).

        With lengths the first `lengths[i]` elements of row i are taken (at most N); with a mask
        those where it is True, in their order. `total` is T_cap of the result; without it the
        number of elements is read, which on a GPU waits for the device.
        """
        checks.tensor("dense", dense)
        checks.tensor("lengths_or_mask", lengths_or_mask)
        checks.same_device("lengths_or_mask", lengths_or_mask, "dense", dense)
        if dense.ndim < 2:
            raise ValueError(f"dense must be [B, N, ...], got shape {checks.shape_of(dense)}")
        batch, length = dense.shape[:2]
        if lengths_or_mask.dtype == torch.bool:
            mask = lengths_or_mask
            checks.shape("mask", mask, (batch, length), "[B, N]")
            order = torch.argsort(mask.to(torch.int8), dim=1, descending=True, stable=True)
            # `torch.gather` takes no unsigned integers but uint8.
            dense = dense[torch.arange(batch, device=dense.device)[:, None], order]
            lengths = mask.sum(1)
        else:
            if lengths_or_mask.shape == (batch, length):
                raise TypeError(
                    f"a mask must be bool, got {lengths_or_mask.dtype}: convert it with mask.bool()"
                )
            checks.shape("lengths", lengths_or_mask, (batch,), "[B]")
            checks.integers("lengths", lengths_or_mask)
            # N itself may be more than a narrow dtype holds.
            narrow = lengths_or_mask.dtype not in checks.OFFSETS_DTYPES
            wide = torch.int64 if narrow else lengths_or_mask.dtype
            lengths = lengths_or_mask.to(wide).clamp(min=0, max=length)
        offsets = as_offsets(lengths, batch * length)
        if total is None:
            total = read_last(offsets)
        return cls(ops.from_padded(dense, offsets, total), offsets, length)

    @classmethod
    def from_row_ids(
        cls, values: Tensor, ids: Tensor, num_rows: int, *, max_length: int | None = None
    ) -> "JaggedTensor":
        """From the row of every element: `ids` [T], integers that never decrease, below `num_rows`.

        Elements whose id is `num_rows` or more become the capacity tail.
        """
        checks.elements("values", values)
        checks.tensor("ids", ids)
        checks.same_device("ids", ids, "values", values)
        checks.shape("ids", ids, (values.shape[0],), "[T]")
        checks.integers("ids", ids)
        checks.length("num_rows", num_rows)
        rows = torch.arange(num_rows + 1, device=ids.device)
        offsets = torch.searchsorted(ids.to(torch.int64).contiguous(), rows)
        return cls(values, offsets, max_length)

    # Views of the structure -------------------------------------------------------------------

    @property
    def num_rows(self) -> int:
        """The number of rows B: `len`, but open where torch.export keeps it open."""
        return self.offsets.shape[0] - 1

    @property
    def device(self) -> torch.device:
        """Where values, offsets and weights are."""
        return self.values.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the values."""
        return self.values.dtype

    def __len__(self) -> int:
        """The number of rows B."""
        return self.num_rows

    def lengths(self) -> Tensor:
        """Row lengths [B], in the dtype of the offsets."""
        return self.offsets[1:] - self.offsets[:-1]

    def row_ids(self) -> Tensor:
        """The row of every element [T_cap], int64; B for the capacity tail."""
        return row_ids(self.offsets, self.values.shape[0])

    def rows(self) -> list[Tensor]:
        """The rows as views of `values` (reads the offsets: on a GPU this waits for the device)."""
        bounds = self.offsets.tolist()
        return [self.values[a:b] for a, b in pairwise(bounds)]

    def __repr__(self) -> str:
        return describe(self)

    # New jagged tensors -----------------------------------------------------------------------

    def with_values(self, values: Tensor) -> "JaggedTensor":
        """The same rows (the same offsets object) with other values [T_cap, ...]."""
        checks.tensor("values", values)
        if values.ndim == 0 or values.shape[0] != self.values.shape[0]:
            raise ValueError(
                f"values must have {self.values.shape[0]} elements like the tensor they replace, "
                f"got shape {checks.shape_of(values)}"
            )
        return JaggedTensor(values, self.offsets, self.max_length, self.weights)

    def to(
        self,
        device: torch.device | str | torch.dtype | None = None,
        dtype: torch.dtype | None = None,
        non_blocking: bool = False,
    ) -> "JaggedTensor":
        """Move to a device; `dtype` casts the values only, never offsets or weights.

        As for a tensor, the dtype may come first: `x.to(torch.bfloat16)`.
        """
        if isinstance(device, torch.dtype):
            if dtype is not None:
                raise TypeError(f"to takes one dtype, got {device} and {dtype}")
            device, dtype = None, device
        weights = self.weights
        return JaggedTensor(
            self.values.to(device=device, dtype=dtype, non_blocking=non_blocking),
            self.offsets.to(device=device, non_blocking=non_blocking),
            self.max_length,
            None if weights is None else weights.to(device=device, non_blocking=non_blocking),
        )

    def pin_memory(self) -> "JaggedTensor":
        """A copy in pinned host memory, from which transfers to a GPU are asynchronous."""
        weights = None if self.weights is None else self.weights.pin_memory()
        return JaggedTensor(
            self.values.pin_memory(), self.offsets.pin_memory(), self.max_length, weights
        )

    def record_stream(self, stream: torch.Stream) -> None:
        """Keep the memory while `stream` uses it, as `torch.Tensor.record_stream` does.

        With `to` it is what a batch of torchrec's train pipelines (`Pipelineable`) asks its parts.
        """
        for part in (self.values, self.offsets, self.weights):
            if part is not None:
                part.record_stream(stream)

    def to_padded(self, max_length: int | None = None, padding_value: float = 0.0) -> Tensor:
        """Dense [B, N, ...] with `padding_value` after each row's end; longer rows are cut at N.

        N is `max_length`, else the tensor's own `max_length`; one of them must be known.
        """
        length = self.max_length if max_length is None else max_length
        if length is None:
            raise ValueError(
                "max_length is not known for this jagged tensor: give it to to_padded(max_length) "
                "or to the constructor"
            )
        return ops.to_padded(self.values, self.offsets, length, padding_value)

    def select(
        self, rows: Tensor | slice | Sequence[int], *, total: int | None = None
    ) -> "JaggedTensor":
        """The rows of an index [R], a bool mask [B], a slice or a list, in that order.

        `total` is T_cap of the result; without it the number of elements is read, which on a GPU
        waits for the device, as a mask and a list do in any case. The offsets of the result are
        int64, since a row may be taken often.
        """
        checks.optional_length("total", total)
        if not isinstance(rows, slice):
            rows = as_index(rows, self.num_rows)
        index = torch.arange(self.num_rows, device=self.offsets.device)[rows]
        lengths = self.lengths()[index]
        offsets = as_offsets(lengths, None)
        if total is None:
            total = read_last(offsets)
        return self._gather([self], self.offsets[:-1][index], offsets, total, self.max_length)

    @classmethod
    def concat(cls, parts: Iterable["JaggedTensor"]) -> "JaggedTensor":
        """Join row by row: row i of the result is row i of every part, one after the other.

        The parts have values of one dtype and trailing shape; weights are kept if all have them.
        The offsets have the dtype of the first part's, int64 where int32 might not hold the sum.
        """
        parts = _as_parts(parts)
        sizes = [part.num_rows for part in parts]
        if any(size != sizes[0] for size in sizes):
            raise ValueError(f"parts must have the same number of rows, got {sizes}")
        starts = torch.stack(_starts_in_cat(parts), 1)
        lengths = torch.stack([part.lengths().to(torch.int64) for part in parts], 1)
        total = sum(part.values.shape[0] for part in parts)
        pieces = as_offsets(lengths.reshape(-1), None)
        joined = cls._gather(parts, starts.reshape(-1), pieces, total, _sum_or_none(parts))
        offsets = pieces[:: len(parts)].to(_offsets_dtype(parts, total))
        return JaggedTensor(joined.values, offsets, joined.max_length, joined.weights)

    def split(
        self,
        left_lengths: Tensor,
        *,
        left_total: int | None = None,
        right_total: int | None = None,
    ) -> tuple["JaggedTensor", "JaggedTensor"]:
        """Undo `concat` of two: the first `left_lengths[i]` elements of row i, and the rest.

        Lengths beyond a row are cut to it, negative ones count as 0: the last n elements of every
        row are `x.split(x.lengths() - n)[1]`. `left_total` and `right_total` are T_cap of the
        results. Without `left_total` the number is read, which on a GPU waits for the device; with
        it alone the right result has room for all elements.
        """
        checks.tensor("left_lengths", left_lengths)
        checks.same_device("left_lengths", left_lengths, "values", self.values)
        checks.integers("left_lengths", left_lengths)
        checks.shape("left_lengths", left_lengths, (self.num_rows,), "[B]")
        checks.optional_length("left_total", left_total)
        checks.optional_length("right_total", right_total)
        asked = left_lengths.to(torch.int64).clamp(min=0)  # which offsets of 32 bits may not hold
        left = torch.minimum(asked, self.lengths()).to(self.offsets.dtype)
        left_offsets = as_offsets(left, None).to(self.offsets.dtype)
        right_offsets = self.offsets - left_offsets
        known = 0  # elements that are surely on the left
        if left_total is None:
            known = left_total = read_last(left_offsets)
        if right_total is None:
            right_total = self.values.shape[0] - known
        start = self.offsets[:-1]
        return (
            self._gather([self], start, left_offsets, left_total, self.max_length),
            self._gather([self], start + left, right_offsets, right_total, self.max_length),
        )

    @classmethod
    def concat_batch(cls, parts: Iterable["JaggedTensor"]) -> "JaggedTensor":
        """Join along the batch: all rows of the first part, then all rows of the second, ...

        Dtypes, trailing shape, weights and offsets are as in `concat`.
        """
        parts = _as_parts(parts)
        starts = torch.cat(_starts_in_cat(parts))
        lengths = torch.cat([part.lengths().to(torch.int64) for part in parts])
        total = sum(part.values.shape[0] for part in parts)
        known = [part.max_length for part in parts if part.max_length is not None]
        longest = max(known) if len(known) == len(parts) else None
        offsets = as_offsets(lengths, None).to(_offsets_dtype(parts, total))
        return cls._gather(parts, starts, offsets, total, longest)

    @staticmethod
    def _gather(
        parts: Sequence["JaggedTensor"],
        starts: Tensor,
        offsets: Tensor,
        total: int,
        max_length: int | None,
    ) -> "JaggedTensor":
        """Rows of the parts laid one after the other, given their starts there and new offsets."""
        values = parts[0].values if len(parts) == 1 else torch.cat([p.values for p in parts])
        weights = [part.weights for part in parts if part.weights is not None]
        moved = None
        if len(weights) == len(parts):
            joined = weights[0] if len(weights) == 1 else torch.cat(weights)
            moved = gather_rows(joined, starts, offsets, total)
        return JaggedTensor(gather_rows(values, starts, offsets, total), offsets, max_length, moved)

    # Contents ---------------------------------------------------------------------------------

    def validate(self, num_targets: Tensor | None = None) -> "JaggedTensor":
        """Check the contents (reads the offsets: on a GPU this waits for the device); returns self.

        Args:
            num_targets: [B] integers for HSTU attention on these rows, to check them as well.

        Raises:
            ValueError: `offsets[0]` is not 0, offsets decrease, `offsets[-1]` is beyond the
                capacity, a row is longer than `max_length`, or `num_targets` is negative or more
                than the elements of its row.
        """
        bounds = self.offsets.tolist()
        if bounds[0] != 0:
            raise ValueError(
                f"offsets must start with 0, got {bounds[0]}: rebase them with offsets - offsets[0]"
            )
        for row, (start, end) in enumerate(pairwise(bounds)):
            if end < start:
                raise ValueError(
                    f"offsets must never decrease, got {start} then {end} at row {row}: "
                    f"that row would have length {end - start}"
                )
            if self.max_length is not None and end - start > self.max_length:
                raise ValueError(
                    f"max_length must bound every row, got {self.max_length} but row {row} "
                    f"has {end - start} elements"
                )
        if bounds[-1] > self.values.shape[0]:
            raise ValueError(
                f"offsets[-1] must not exceed the {self.values.shape[0]} elements of values, "
                f"got {bounds[-1]}"
            )
        if num_targets is not None:
            checks.tensor("num_targets", num_targets)
            checks.integers("num_targets", num_targets)
            checks.shape("num_targets", num_targets, (self.num_rows,), "[B]")
            for row, targets in enumerate(num_targets.tolist()):
                length = bounds[row + 1] - bounds[row]
                if not 0 <= targets <= length:
                    raise ValueError(
                        f"num_targets must be in 0..{length} for row {row} of {length} elements, "
                        f"got {targets}: attention would take the nearest of these"
                    )
        return self


def _as_parts(given: object) -> list[JaggedTensor]:
    """A list of jagged tensors that can be put one behind the other."""
    if not isinstance(given, Iterable):  # a jagged tensor alone, say
        raise TypeError(f"parts must be a list of jagged tensors, got {type(given).__name__}")
    parts = list(given)
    if len(parts) == 0:
        raise ValueError("parts must hold at least one jagged tensor, got none")
    first = parts[0]
    for index, part in enumerate(parts):
        name = f"parts[{index}]"
        if not isinstance(part, JaggedTensor):
            raise TypeError(f"{name} must be a JaggedTensor, got {type(part).__name__}")
        checks.alike(f"{name}.values", part.values, "parts[0].values", first.values)
        if part.weights is not None and first.weights is not None:
            checks.alike(f"{name}.weights", part.weights, "parts[0].weights", first.weights)
    return parts


def _starts_in_cat(parts: Sequence[JaggedTensor]) -> list[Tensor]:
    """Where each part's rows begin when the values of all are concatenated, int64."""
    starts, shift = [], 0
    for part in parts:
        starts.append(part.offsets[:-1].to(torch.int64) + shift)
        shift += part.values.shape[0]
    return starts


def _offsets_dtype(parts: Sequence[JaggedTensor], total: int) -> torch.dtype:
    """The dtype of the first part's offsets; int64 where int32 might not hold `total`."""
    first = parts[0].offsets.dtype
    return first if first == torch.int64 or total < 2**31 else torch.int64


def _sum_or_none(parts: Sequence[JaggedTensor]) -> int | None:
    known = [part.max_length for part in parts if part.max_length is not None]
    return sum(known) if len(known) == len(parts) else None


def _flatten(x: JaggedTensor) -> tuple[list[Any], tuple[int | None, bool]]:
    """The tensors, and what is none: the bound, and whether there are weights.

    Absent weights are no leaf: torch calls what is mapped over a tree with a None leaf as well.
    """
    leaves = [x.values, x.offsets]
    if x.weights is not None:
        leaves.append(x.weights)
    return leaves, (x.max_length, x.weights is not None)


def _flatten_with_keys(
    x: JaggedTensor,
) -> tuple[list[tuple[Any, Any]], tuple[int | None, bool]]:
    leaves, context = _flatten(x)
    names = ("values", "offsets", "weights")
    return [(pytree.GetAttrKey(n), leaf) for n, leaf in zip(names, leaves, strict=False)], context


def _unflatten(leaves: Any, context: tuple[int | None, bool]) -> JaggedTensor:
    """Without checks: tree_map may put anything in place of the tensors."""
    max_length, weighted = context
    values, offsets, weights = leaves if weighted else (*leaves, None)
    x = object.__new__(JaggedTensor)
    for name, leaf in (
        ("values", values),
        ("offsets", offsets),
        ("max_length", max_length),
        ("weights", weights),
    ):
        object.__setattr__(x, name, leaf)
    return x


pytree.register_pytree_node(
    JaggedTensor,
    _flatten,
    _unflatten,
    serialized_type_name="jagged.JaggedTensor",
    to_dumpable_context=list,
    from_dumpable_context=tuple,
    flatten_with_keys_fn=_flatten_with_keys,
)
# It holds nothing but data: `torch.load` may unpickle it, which otherwise takes no classes.
torch.serialization.add_safe_globals([JaggedTensor])
