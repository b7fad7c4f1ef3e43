"""Helpers for testing ops on jagged tensors: random inputs, row-loop oracles, an error budget.

Shared by the tests, the benchmark and users who write ops of their own. The oracles are the
specification: a Python loop over rows in float64, differentiable by autograd.
"""

from collections.abc import Callable, Sequence

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
    return [slice(a, b) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]


def assert_accurate(
    actual: Tensor, exact: Tensor, plain: Tensor, *, factor: float = 2.0, name: str = "result"
) -> None:
    """`actual` is about as near to the float64 result `exact` as plain torch in the same dtype is.

    The error, in the Frobenius norm and in the worst element, may be `factor` times the sum of
    the error of `plain` and one eps of the dtype times the magnitude (of the whole, and of the
    element's row of the tensor: its index in the first dimension).

    Raises:
        AssertionError: shape, dtype, a NaN in other places, or the error; it names the worst element.
    """
    assert actual.shape == exact.shape, f"{name}: shape {actual.shape}, expected {exact.shape}"
    assert actual.dtype == plain.dtype, f"{name}: dtype {actual.dtype}, expected {plain.dtype}"
    if exact.numel() == 0:
        return
    eps = torch.finfo(actual.dtype).eps
    got, want, easy = (t.detach().to("cpu", torch.float64) for t in (actual, exact, plain))
    assert torch.equal(got.isfinite(), want.isfinite()), (
        f"{name}: {int((got.isfinite() != want.isfinite()).sum())} elements are finite in one of result and oracle only"
    )
    finite = want.isfinite()
    got, want = torch.where(finite, got, 0), torch.where(finite, want, 0)
    easy = torch.where(finite, easy, 0)
    error, allowed = (got - want).abs(), (easy - want).abs()
    norm_budget = factor * (allowed.norm() + eps * want.norm())
    assert error.norm() <= norm_budget, (
        f"{name}: error {error.norm():.3e} in norm, allowed {norm_budget:.3e}"
    )
    magnitude = want.abs().reshape(want.shape[0], -1).amax(1) if want.ndim > 1 else want.abs()
    magnitude = magnitude.reshape(magnitude.shape + (1,) * (want.ndim - 1))
    budget = factor * (allowed.max() + eps * magnitude)
    excess = error - budget
    if bool((excess > 0).any()):
        worst = int(excess.argmax())
        index = [int(i) for i in torch.unravel_index(torch.tensor(worst), error.shape)]
        raise AssertionError(
            f"{name}: element {index} is {got.flatten()[worst]:.6g}, expected "
            f"{want.flatten()[worst]:.6g}, allowed error {budget.expand_as(error).flatten()[worst]:.3e}"
        )


def sum_oracle(values: Tensor, offsets: Tensor) -> Tensor:
    """[B, ...]: the sum of each row."""
    return _stack([values[row].sum(0) for row in row_slices(offsets)], values)


def _stack(rows: list[Tensor], like: Tensor) -> Tensor:
    return torch.stack(rows) if rows else like.new_zeros((0, *like.shape[1:]))


Oracle = Callable[..., Tensor]
