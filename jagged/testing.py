"""Helpers for testing ops on jagged tensors: random inputs, row-loop oracles, an error budget.

Shared by the tests, the benchmark and users who write ops of their own. The oracles are the
specification: a Python loop over rows in float64, differentiable by autograd.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from jagged._attention_oracle import hstu_attention_oracle as hstu_attention_oracle
from jagged._attention_oracle import hstu_attention_plain as hstu_attention_plain
from jagged.layout import JaggedTensor


def random_jagged(
    lengths: Sequence[int],
    *trailing: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    offsets_dtype: torch.dtype = torch.int64,
    tail: int = 0,
    seed: int = 0,
) -> JaggedTensor:
    """Rows of the given lengths with standard normal elements of shape `trailing`.

    `tail` adds that many elements of capacity after the last row, filled with NaN.
    """
    generator = torch.Generator().manual_seed(seed)
    total = sum(lengths)
    values = torch.randn(total + tail, *trailing, generator=generator, dtype=torch.float64)
    values[total:] = torch.nan
    offsets = torch.tensor([0, *lengths], dtype=torch.int64).cumsum(0).to(offsets_dtype)
    longest = max(lengths, default=0)
    return JaggedTensor(values.to(device, dtype), offsets.to(device), longest)


def row_slices(offsets: Tensor) -> list[slice]:
    """The rows as slices of the ragged dimension."""
    bounds = offsets.tolist()
    return [slice(start, end) for start, end in itertools.pairwise(bounds)]


def assert_accurate(
    actual: Tensor, exact: Tensor, plain: Tensor, *, factor: float = 2.0, name: str = "result"
) -> None:
    """`actual` is about as near to the float64 result `exact` as plain torch in its dtype is.

    `plain` is what plain torch gives in the dtype of `actual`, accumulated in float32. The error,
    in the Frobenius norm and in the worst element, may be `factor` times the sum of the error of
    `plain` and one eps of the dtype times the magnitude: of the whole tensor for the norm, and for
    an element the largest of its row of the tensor (its index in the first dimension), since
    the error of `plain` is 0 in places. Infinities and NaN must be where the dtype puts them for
    `exact` or where `plain` has them; they and integers must be equal.

    Raises:
        AssertionError: shape, dtype, or an error beyond the budget; it names the worst element.
    """
    assert actual.shape == exact.shape, f"{name}: shape {actual.shape}, expected {exact.shape}"
    assert plain.shape == exact.shape, f"{name}: plain has shape {plain.shape}, not {exact.shape}"
    assert actual.dtype == plain.dtype, f"{name}: dtype {actual.dtype}, expected {plain.dtype}"
    if not actual.dtype.is_floating_point:
        assert torch.equal(actual.cpu(), exact.cpu()), f"{name}: {actual} is not {exact}"
        return
    assert exact.dtype == torch.float64, f"{name}: the exact result is {exact.dtype}, not float64"
    if exact.numel() == 0:
        return
    eps = torch.finfo(actual.dtype).eps
    rounded = exact.detach().to("cpu", actual.dtype)
    got, want, easy = (t.detach().to("cpu", torch.float64) for t in (actual, exact, plain))
    _assert_same_specials(got, rounded.to(torch.float64), easy, name)
    finite = want.isfinite() & got.isfinite() & easy.isfinite()
    got, want, easy = (torch.where(finite, t, 0) for t in (got, want, easy))
    error, allowed = (got - want).abs(), (easy - want).abs()
    norm_budget = factor * (allowed.norm() + eps * want.norm())
    assert error.norm() <= norm_budget, (
        f"{name}: error {error.norm():.3e} in norm, allowed {norm_budget:.3e} "
        f"(plain torch {allowed.norm():.3e}, magnitude {want.norm():.3e})"
    )
    magnitude = want.abs().reshape(want.shape[0], -1).amax(1)
    magnitude = magnitude.reshape(magnitude.shape + (1,) * (want.ndim - 1))
    budget = (factor * (allowed.max() + eps * magnitude)).expand_as(error)
    excess = error - budget
    if bool((excess > 0).any()):
        worst = int(excess.argmax())
        raise AssertionError(
            f"{name}: element {_index(worst, error)} is {got.flatten()[worst]:.6g}, expected "
            f"{want.flatten()[worst]:.6g}: error {error.flatten()[worst]:.3e}, "
            f"allowed {budget.flatten()[worst]:.3e}"
        )


def _assert_same_specials(got: Tensor, want: Tensor, plain: Tensor, name: str) -> None:
    """Infinities and NaN are where `want` or `plain` has them, and the same there."""
    special = ~got.isfinite() | ~want.isfinite()
    same = torch.zeros_like(special)
    for other in (want, plain):
        same |= (got == other) | (got.isnan() & other.isnan())
    wrong = special & ~same
    if bool(wrong.any()):
        first = int(wrong.flatten().to(torch.int8).argmax())
        raise AssertionError(
            f"{name}: element {_index(first, got)} is {got.flatten()[first]}, expected "
            f"{want.flatten()[first]} ({int(wrong.sum())} such elements)"
        )


def _index(flat: int, like: Tensor) -> list[int]:
    return [int(i) for i in torch.unravel_index(torch.tensor(flat), like.shape)]


# The oracles take the arguments of the op and compute in the dtype of the operands: give them
# float64 for the exact result, float32 for that of plain torch. Elements of the capacity tail are
# 0 in jagged results.


def sum_oracle(values: Tensor, offsets: Tensor) -> Tensor:
    """[B, ...]: the sum of each row."""
    return _stack([values[row].sum(0) for row in row_slices(offsets)], values)


def mean_oracle(values: Tensor, offsets: Tensor) -> Tensor:
    """[B, ...]: the mean of each row, 0 for an empty one."""
    rows = [values[row] for row in row_slices(offsets)]
    return _stack([row.sum(0) / max(row.shape[0], 1) for row in rows], values)


def softmax_oracle(values: Tensor, offsets: Tensor, max_length: int | None = None) -> Tensor:
    """[T, ...]: softmax along each row, 0 at or past `max_length`."""
    rows = [values[row] for row in row_slices(offsets)]
    return _join([_extend(row[:max_length].softmax(0), row.shape[0]) for row in rows], values)


def layer_norm_oracle(
    values: Tensor,
    offsets: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """[T, D]: one mean and variance a row."""
    rows = [_normal(values[row], eps) for row in row_slices(offsets)]
    rows = [row if weight is None else row * weight for row in rows]
    return _join([row if bias is None else row + bias for row in rows], values)


def token_layer_norm_oracle(
    values: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    offsets: Tensor | None = None,
) -> Tensor:
    """[T, D]: one mean and variance an element."""
    total = values.shape[0] if offsets is None else int(offsets[-1])
    elements = [_normal(values[i : i + 1], eps) for i in range(total)]
    elements = [x if weight is None else x * weight for x in elements]
    return _join([x if bias is None else x + bias for x in elements], values)


def norm_mul_dropout_oracle(
    values: Tensor,
    u: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    silu: bool = False,
    concat: bool = False,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """[T, D] or [T, 3 D]: gate times layer norm, over all features or by head."""
    total = values.shape[0] if offsets is None else int(offsets[-1])
    if values.ndim == 3:  # one number a head
        weight, bias = (None if p is None else p[:, None] for p in (weight, bias))
    elements = []
    for t in range(total):
        x, gate = values[t], torch.nn.functional.silu(u[t]) if silu else u[t]
        normed = torch.stack([_normal(head, eps) for head in x]) if x.ndim == 2 else _normal(x, eps)
        normed = normed if weight is None else normed * weight
        normed = normed if bias is None else normed + bias
        gated = gate * normed
        elements.append(torch.stack([gate, x, gated] if concat else [gated]).flatten()[None])
    parts = 3 if concat else 1
    width = values.shape[1:].numel()
    out = _join(elements, values.new_zeros(values.shape[0], parts * width))
    if dropout > 0 and seed is not None:
        keep = dropout_keep(int(seed), values.shape[0], width, parts, dropout)
        out = out * keep.to(out) / (1 - dropout)
    return out


def dropout_keep(seed: int, total: int, width: int, parts: int, dropout: float) -> Tensor:
    """[total, parts * width] bool: what the dropout of `jagged.ops.norm_mul_dropout` keeps.

    Written in the unsigned numbers of its definition.
    """
    low = 2**32 - 1

    def mix(x: int, halfway: int = 0) -> int:
        x = (x ^ x >> 16) * 0x7FEB352D & low ^ halfway
        x = (x ^ x >> 15) * 0x846CA68B & low
        return x ^ x >> 16

    keep = torch.empty(total, parts, width, dtype=torch.bool)
    for t in range(total):
        first = mix(t ^ seed & low)
        second = mix(first ^ seed >> 32 & low)
        for column in range(width):
            number = mix(first + column // 2 * 0x9E3779B9 & low, second)
            number = number * 0x2C9277B5 ** (3 * (column % 2)) & low
            for part in range(parts):
                signed = number - 2**32 if number >= 2**31 else number
                keep[t, part, column] = signed >= (dropout - 0.5) * 2**32
                number = number * 0x2C9277B5 & low
    return keep.flatten(1)


def dense_add_oracle(values: Tensor, offsets: Tensor, dense: Tensor) -> Tensor:
    """[T, ...]: element j of row i plus `dense[i, j]`."""
    return _join(
        [
            values[row] + _extend(dense[i, : row.stop - row.start], row.stop - row.start)
            for i, row in enumerate(row_slices(offsets))
        ],
        values,
    )


def padded_add_oracle(values: Tensor, offsets: Tensor, dense: Tensor) -> Tensor:
    """[B, N, ...]: `dense[i, j]` plus element j of row i."""
    return to_padded_oracle(values, offsets, dense.shape[1]) + dense


def row_add_oracle(values: Tensor, offsets: Tensor, dense: Tensor) -> Tensor:
    """[T, ...]: every element of row i plus `dense[i]`."""
    return _join([values[row] + dense[i] for i, row in enumerate(row_slices(offsets))], values)


def dense_bmm_oracle(
    values: Tensor,
    offsets: Tensor,
    dense: Tensor,
    bias: Tensor | None = None,
    max_length: int | None = None,
) -> Tensor:
    """[T, N]: row i times `dense[i]` plus `bias[i]`, 0 at or past `max_length`."""
    rows = []
    for i, row in enumerate(row_slices(offsets)):
        product = values[row][:max_length] @ dense[i]
        product = product if bias is None else product + bias[i]
        rows.append(_extend(product, row.stop - row.start))
    return _join(rows, values.new_zeros(values.shape[0], dense.shape[2]))


def jagged_bmm_oracle(
    x: Tensor, y: Tensor, offsets: Tensor, max_length: int | None = None
) -> Tensor:
    """[B, M, N]: x_i transposed times y_i."""
    rows = [x[row][:max_length].T @ y[row][:max_length] for row in row_slices(offsets)]
    return _stack(rows, x.new_zeros(0, x.shape[1], y.shape[1]))


def to_padded_oracle(
    values: Tensor, offsets: Tensor, max_length: int, padding_value: float = 0.0
) -> Tensor:
    """[B, N, ...]: rows cut or filled up to N = `max_length`."""
    rows = [values[row][:max_length] for row in row_slices(offsets)]
    like = values.new_zeros(0, max_length, *values.shape[1:])
    return _stack([_extend(row, max_length, padding_value) for row in rows], like)


def from_padded_oracle(dense: Tensor, offsets: Tensor, total: int) -> Tensor:
    """[total, ...]: the first elements of each dense row, 0 at or past N."""
    lengths = [row.stop - row.start for row in row_slices(offsets)]
    rows = [_extend(dense[i, :length], length) for i, length in enumerate(lengths)]
    return _join(rows, dense.new_zeros(total, *dense.shape[2:]))


def _normal(x: Tensor, eps: float) -> Tensor:
    """`x` with mean 0 and variance 1 over all of it."""
    if x.numel() == 0:
        return x
    centred = x - x.mean()
    return centred / (centred.square().mean() + eps).sqrt()


def _extend(row: Tensor, length: int, filling: float = 0.0) -> Tensor:
    """`row` [n, ...] filled up to `length` elements."""
    missing = row.new_full((length - row.shape[0], *row.shape[1:]), filling)
    return torch.cat([row, missing])


def _stack(rows: list[Tensor], like: Tensor) -> Tensor:
    """The rows as [B, ...]; `like` gives the trailing dimensions where there are none."""
    return torch.stack(rows) if rows else like.new_zeros((0, *like.shape[1:]))


def _join(rows: list[Tensor], like: Tensor) -> Tensor:
    """The rows one after the other, filled up to as many elements as `like` has."""
    total = sum(row.shape[0] for row in rows)
    return torch.cat([*rows, like.new_zeros((like.shape[0] - total, *like.shape[1:]))])
