"""What the cases leave out of the reductions: trailing dimensions, split rows, optional operands,
and NaN or infinity in one place."""

from typing import Any

import pytest
import torch
from torch import Tensor

from jagged.eager import layer_norm as eager_layer_norm
from jagged.eager import softmax as eager_softmax
from jagged.eager import sum as eager_sum
from jagged.eager import token_layer_norm as eager_token_layer_norm
from jagged.kernels import _rows, layer_norm, softmax, token_layer_norm
from jagged.kernels import mean as mean_kernel
from jagged.kernels import sum as sum_kernel
from jagged.tuning.configs import Config

LENGTHS = (5, 0, 37, 1)
FILLED, TOTAL = 43, 47
ROW = Config({"block_sizes": [16, 16]}, "row", {"DEEP": 2, "BLOCK": 8})
ROWS = Config({"block_sizes": [4, 16]}, "rows", {"BLOCK": 8})
SUM_ROW = Config({"block_sizes": [16]}, "row", {"DEEP": 2, "BLOCK": 8})


@pytest.fixture(autouse=True)
def configs(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Config({"block_sizes": [16]}, "row", {"DEEP": 1, "BLOCK": 16, "TURNS": 2})
    for table, config in (
        (sum_kernel.FORWARD, SUM_ROW),
        (mean_kernel.FORWARD, SUM_ROW),
        (sum_kernel.BACKWARD, Config({"block_sizes": [32, 16]})),
        (softmax.FORWARD, ROW),
        (softmax.BACKWARD, ROW),
        (layer_norm.FORWARD, Config({"block_sizes": [16]}, "row", {"DEEP": 2, "BLOCK": 8})),
        (layer_norm.BACKWARD, turns),
        (token_layer_norm.FORWARD, Config({"block_sizes": [16]})),
        (token_layer_norm.BACKWARD, Config({}, constants={"BLOCK": 16, "PROGRAMS": 2})),
    ):
        monkeypatch.setattr(table, "pick", lambda *_, config=config: config)


def values(*trailing: int) -> Tensor:
    data = torch.randn(TOTAL, *trailing)
    data[FILLED:] = float("nan")
    return data


def offsets() -> Tensor:
    return torch.tensor([0, *LENGTHS]).cumsum(0)


def close(ours: Any, exact: Any) -> None:
    pairs = zip(ours, exact, strict=True) if isinstance(ours, tuple) else [(ours, exact)]
    for result, answer in pairs:
        assert result.shape == answer.shape
        torch.testing.assert_close(result.double(), answer, rtol=2e-5, atol=2e-5, equal_nan=True)


def doubled(*args: Any) -> tuple[Any, ...]:
    return tuple(
        arg.double() if isinstance(arg, Tensor) and arg.is_floating_point() else arg for arg in args
    )


@pytest.mark.parametrize("trailing", [(), (2, 3), (2, 1, 5)])
def test_trailing_dimensions(trailing: tuple[int, ...]) -> None:
    x, bounds = values(*trailing), offsets()
    close(sum_kernel.forward(x, bounds), eager_sum.forward(x.double(), bounds))
    grad = torch.randn(len(LENGTHS), *trailing)
    close(
        sum_kernel.backward(grad, bounds, TOTAL),
        eager_sum.backward(grad.double(), bounds, TOTAL),
    )
    weights = softmax.forward(x, bounds, None)
    close(weights, eager_softmax.forward(x.double(), bounds, None))
    args = values(*trailing), weights, bounds, None
    close(softmax.backward(*args), eager_softmax.backward(*doubled(*args)))


@pytest.mark.parametrize("kernel", [sum_kernel, mean_kernel])
def test_split_rows(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, bounds = values(25), offsets()
    whole = kernel.forward(x, bounds)
    monkeypatch.setattr(_rows, "SPLIT_LENGTH", 2)
    monkeypatch.setattr(_rows, "SPLIT_PROGRAMS", 3 * len(LENGTHS))
    close(kernel.forward(x, bounds), whole.double())


@pytest.mark.parametrize("has_weight", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_optional_weight_and_bias(has_weight: bool, has_bias: bool) -> None:
    x, bounds, grad = values(25), offsets(), values(25)
    weight = torch.randn(25) if has_weight else None
    bias = torch.randn(25) if has_bias else None
    out, mean, rstd = layer_norm.forward(x, bounds, weight, bias, 1e-5)
    exact = eager_layer_norm.forward(*doubled(x, bounds, weight, bias), 1e-5)
    close((out, mean, rstd), exact)
    args = grad, x, bounds, mean, rstd, weight, has_bias
    close(layer_norm.backward(*args), eager_layer_norm.backward(*doubled(*args)))
    token = token_layer_norm.forward(x, weight, bias, 1e-5, bounds)
    exact = eager_token_layer_norm.forward(*doubled(x, weight, bias), 1e-5, bounds)
    close(token[0], exact[0])
    args = grad, x, *token[1:], weight, has_bias, bounds
    close(token_layer_norm.backward(*args), eager_token_layer_norm.backward(*doubled(*args)))


def test_a_mean_far_from_zero_keeps_the_variance() -> None:
    x = torch.randn(TOTAL, 25) * 0.1 + 1000
    out, *_ = layer_norm.forward(x, offsets(), None, None, 1e-5)
    exact, *_ = eager_layer_norm.forward(x.double(), offsets(), None, None, 1e-5)
    torch.testing.assert_close(out[:FILLED].double(), exact[:FILLED], rtol=0, atol=2e-3)


@pytest.mark.parametrize("config", [ROW, ROWS], ids=["row", "rows"])
@pytest.mark.parametrize("special", [float("nan"), float("inf"), float("-inf")])
def test_softmax_keeps_special_values_in_their_column(
    config: Config, special: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softmax.FORWARD, "pick", lambda *_: config)
    x, bounds = values(3), offsets()
    x[2, 0] = special  # in a row of one block
    x[9, 1] = special  # in the first block of a long row
    x[42] = special  # all of a row
    close(softmax.forward(x, bounds, None), eager_softmax.forward(x.double(), bounds, None))


@pytest.mark.parametrize("config", [ROW, ROWS], ids=["row", "rows"])
def test_softmax_of_the_lowest_numbers(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax.FORWARD, "pick", lambda *_: config)
    lowest = torch.finfo(torch.float32).min
    x = torch.full((TOTAL, 3), lowest)
    x[7] = 1.0
    out = softmax.forward(x, offsets(), None)
    torch.testing.assert_close(out[:5], torch.full((5, 3), 0.2))
    torch.testing.assert_close(out[7], torch.ones(3))
    assert (out[8:42] == 0).all()


def test_a_limit_beyond_32_bits_is_none() -> None:
    x, bounds = values(3), offsets()
    for result, limit in ((softmax.forward(x, bounds, n), n) for n in (2**31, 2**63 - 1)):
        close(result, eager_softmax.forward(x.double(), bounds, limit))
        change = softmax.backward(x, result, bounds, limit)
        close(change, eager_softmax.backward(*doubled(x, result), bounds, limit))


def test_wide_arithmetic_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, bounds, grad = values(25), offsets().to(torch.int32), values(25)
    weights = softmax.forward(x, bounds, None)
    change = softmax.backward(grad, weights, bounds, None)
    monkeypatch.setattr(softmax, "narrow", lambda *_: False)
    close(softmax.forward(x, bounds, None), weights.double())
    close(softmax.backward(grad, weights, bounds, None), change.double())
