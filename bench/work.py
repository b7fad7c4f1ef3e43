"""Bytes that must move and FLOPs that must be done, from the real lengths.

Every input is read once and every output written once, real elements only; a gradient counts as
one input of the backward pass. These are floors: no implementation moves less. e = bytes an
element, T elements, B rows, N longest row, D features.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.shapes import Shape
from jagged import HSTUMask


@dataclass(frozen=True)
class Work:
    """`flops` counts matrix products alone: where it is 0 the bytes decide."""

    bytes: int
    flops: int = 0

    def floor_ms(self, copy_gb_s: float, matmul_tflop_s: float) -> float:
        """The least time at the limits measured in the same run."""
        return max(self.bytes / copy_gb_s * 1e-6, self.flops / matmul_tflop_s * 1e-9)


@dataclass(frozen=True)
class Sizes:
    """What the formulas below count in."""

    T: int
    B: int
    N: int
    D: int
    e: int  # bytes an element
    offsets: int  # bytes of the offsets
    shape: Shape
    lengths: Tensor
    num_targets: Tensor | None = None


def sizes(
    shape: Shape, lengths: Tensor, dtype: torch.dtype, num_targets: Tensor | None = None
) -> Sizes:
    rows = int(lengths.shape[0])
    return Sizes(
        T=int(lengths.sum()),
        B=rows,
        N=shape.longest,
        D=shape.width,
        e=dtype.itemsize,
        offsets=(rows + 1) * shape.offsets_dtype.itemsize,
        shape=shape,
        lengths=lengths,
        num_targets=num_targets,
    )


def reduction(s: Sizes, backward: bool) -> Work:
    """sum, mean: the elements and one result a row, in either direction."""
    return Work((s.T + s.B) * s.D * s.e + s.offsets)


def softmax(s: Sizes, backward: bool) -> Work:
    """Backward: result and gradient in, gradient out."""
    return Work((3 if backward else 2) * s.T * s.D * s.e + s.offsets)


def layer_norm(s: Sizes, backward: bool) -> Work:
    """Backward: values and gradient in, gradient out."""
    return softmax(s, backward)


def token_layer_norm(s: Sizes, backward: bool) -> Work:
    """No offsets; weight and bias [D], and in the backward pass their gradients."""
    factor, parameters = (3, 3) if backward else (2, 2)
    return Work((factor * s.T + parameters) * s.D * s.e)


def norm_mul_dropout(s: Sizes, backward: bool) -> Work:
    """Values and gate in, three parts out; backward the other way round, values and gate in again.
    Weight and bias [D], and in the backward pass their gradients."""
    factor, parameters = (7, 4) if backward else (5, 2)
    return Work((factor * s.T + parameters) * s.D * s.e)


def dense_add(s: Sizes, backward: bool) -> Work:
    """Backward: the gradient of the values is the incoming one; that of dense covers [B, N, D]."""
    if backward:
        return Work((s.T + s.B * s.N) * s.D * s.e + s.offsets)
    return Work(3 * s.T * s.D * s.e + s.offsets)


def padded_add(s: Sizes, backward: bool) -> Work:
    """Backward: the gradient of dense is the incoming one; that of the values is cut out of it."""
    if backward:
        return Work(2 * s.T * s.D * s.e + s.offsets)
    return Work((s.T + 2 * s.B * s.N) * s.D * s.e + s.offsets)


def row_add(s: Sizes, backward: bool) -> Work:
    """Backward: the gradient of the values is the incoming one; that of dense is its sum by row."""
    factor = 1 if backward else 2
    return Work((factor * s.T + s.B) * s.D * s.e + s.offsets)


def to_padded(s: Sizes, backward: bool) -> Work:
    """Forward the whole [B, N, D] is written; backward only real cells are read."""
    cells = s.T if backward else s.B * s.N
    return Work((s.T + cells) * s.D * s.e + s.offsets)


def from_padded(s: Sizes, backward: bool) -> Work:
    return to_padded(s, not backward)


def dense_bmm(s: Sizes, backward: bool) -> Work:
    """[T, K] x [B, K, N]; backward also reads the values and writes both gradients."""
    K, N = s.D, s.shape.columns
    bias = s.B * N if s.shape.bias else 0
    if backward:
        moved = s.T * (2 * K + N) + 2 * s.B * K * N + bias
        return Work(moved * s.e + s.offsets, 4 * s.T * K * N)
    return Work((s.T * (K + N) + s.B * K * N + bias) * s.e + s.offsets, 2 * s.T * K * N)


def jagged_bmm(s: Sizes, backward: bool) -> Work:
    """[T, M] x [T, N] by rows; backward reads both and writes both gradients."""
    M, N = s.D, s.shape.columns
    factor = 2 if backward else 1
    moved = factor * s.T * (M + N) + s.B * M * N
    return Work(moved * s.e + s.offsets, factor * 2 * s.T * M * N)


def hstu_attention(s: Sizes, backward: bool) -> Work:
    """Two products over the kept pairs forward; five backward (S again, dP, dq, dk, dv)."""
    options = s.shape.attention
    assert options is not None
    H, D, V = options.heads, s.D, options.value_features
    pairs = int(kept_pairs(s.lengths, options.mask, s.num_targets).sum())
    small = s.offsets + (8 * s.T if options.time else 0) + (4 * s.T if options.per_query else 0)
    if backward:
        return Work(s.T * H * (4 * D + 3 * V) * s.e + small, 2 * H * pairs * (3 * D + 2 * V))
    return Work(s.T * H * (2 * D + 2 * V) * s.e + small, 2 * H * pairs * (D + V))


def kept_pairs(lengths: Tensor, mask: HSTUMask, num_targets: Tensor | None = None) -> Tensor:
    """[B] int64: how many (query, key) pairs of each row `HSTUMask` keeps, in O(T)."""
    lengths = lengths.to(torch.int64)
    rows = torch.repeat_interleave(torch.arange(lengths.shape[0]), lengths)
    starts = lengths.cumsum(0) - lengths
    position = torch.arange(rows.shape[0]) - starts[rows]
    context = mask.contextual
    history = lengths - max(context - 1, 0)
    identity = (position - context + 1).clamp(min=0) if context else position
    if num_targets is not None:
        targets = torch.minimum(num_targets.to("cpu", torch.int64).clamp(min=0), lengths)
        history = history - targets
    history = history[rows]
    if num_targets is not None:
        identity = torch.minimum(identity, history)

    def before(identities: Tensor) -> Tensor:
        """Elements with a smaller identity; the contextual ones share identity 0."""
        return torch.where(identities > 0, identities + max(context - 1, 0), 0)

    seen = before(identity)
    if mask.window:
        reach = (identity - mask.window).clamp(min=0)
        near = seen - before(reach)
        free = identity >= history - mask.min_full if mask.min_full else identity < 0
        seen = torch.where(free, seen, near)
    seen = seen + 1  # itself
    if context:
        # What sees all history already counts itself there, if it is history.
        seen = torch.where((identity == 0) & (history > 0), before(history), seen)
    return torch.zeros_like(lengths).index_add_(0, rows, seen)


WorkOf = Callable[[Sizes, bool], Work]
