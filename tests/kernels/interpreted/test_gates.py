"""What the cases leave out of the gated norm: heads, and every option left out."""

from typing import Any

import pytest
import torch
from torch import Tensor

from jagged.eager import norm_mul_dropout as eager
from jagged.kernels import norm_mul_dropout as kernels
from jagged.tuning import launch
from jagged.tuning.configs import Config

LENGTHS, FILLED, TOTAL = (5, 0, 37, 1), 43, 47
OFFSETS = torch.tensor([0, *LENGTHS]).cumsum(0)


@pytest.fixture(autouse=True)
def configs(monkeypatch: pytest.MonkeyPatch) -> None:
    for table, config in (
        (kernels.FORWARD, Config({"block_sizes": [16]})),
        (kernels.BACKWARD, Config({}, constants={"BLOCK": 16, "PROGRAMS": 2})),
    ):
        monkeypatch.setattr(table, "pick", lambda *_, config=config: config)


def values(*trailing: int) -> Tensor:
    """A strided view with NaN in its tail and between its elements."""
    wide = torch.randn(TOTAL, *trailing[:-1], trailing[-1] + 3)
    wide[FILLED:] = torch.nan
    wide[..., trailing[-1] :] = torch.nan
    return wide[..., : trailing[-1]]


def doubled(*args: Any) -> tuple[Any, ...]:
    return tuple(
        arg.double() if isinstance(arg, Tensor) and arg.is_floating_point() else arg for arg in args
    )


def compare(operands: tuple[Any, ...], grad: Tensor, has_bias: bool, *options: Any) -> None:
    """Forward and backward of `operands` (values, u, weight, bias); options from silu on."""
    found = kernels.forward(*operands, 1e-5, *options)
    exact = eager.forward(*doubled(*operands), 1e-5, *options)
    close(found, exact)
    saved = *operands[:2], *found[1:], *operands[2:], has_bias, *options
    close(kernels.backward(grad, *saved), eager.backward(grad.double(), *doubled(*saved)))


def close(ours: tuple[Tensor, ...], exact: tuple[Tensor, ...]) -> None:
    for result, answer in zip(ours, exact, strict=True):
        assert result.shape == answer.shape
        torch.testing.assert_close(result.double(), answer, rtol=2e-5, atol=5e-5)


@pytest.mark.parametrize("wide", [False, True])
def test_by_head(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with 64-bit addresses, which must not make the hash one of 64 bits."""
    if wide:
        monkeypatch.setattr(launch, "INT32_LIMIT", 1)
    x, u, weight, bias = values(3, 25), values(3, 25), torch.randn(3), torch.randn(3)
    seed = torch.tensor([-(2**40) - 7])
    compare((x, u, weight, bias), values(3 * 75), True, True, True, 0.3, seed, OFFSETS)


@pytest.mark.parametrize("has_bias", [False, True])
def test_few_options(has_bias: bool) -> None:
    """As research's layer in evaluation; and a bias without a weight."""
    x, u, grad = (torch.randn(TOTAL, 25) for _ in range(3))
    bias = torch.randn(25) if has_bias else None
    compare((x, u, None, bias), grad, has_bias, False, False, 0.0, None, None)


def test_an_unneeded_gradient_of_the_bias() -> None:
    x, u, grad = (torch.randn(TOTAL, 8) for _ in range(3))
    compare((x, u, torch.randn(8), torch.randn(8)), grad, False, True, False, 0.0, None, None)
