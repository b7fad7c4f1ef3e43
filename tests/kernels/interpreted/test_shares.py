"""Products whose rows are cut into shares, as they are where there are few rows."""

import pytest
import torch
from torch import Tensor

from jagged.eager import dense_bmm as eager_dense_bmm
from jagged.eager import jagged_bmm as eager_jagged_bmm
from jagged.kernels import _products, dense_bmm, jagged_bmm

LENGTHS = (5, 0, 37, 1)
FILLED, TOTAL = 43, 47


@pytest.fixture(autouse=True)
def three_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_products, dense_bmm):
        monkeypatch.setattr(module, "splits_of", lambda *_: 3)


def values(width: int) -> Tensor:
    data = torch.randn(TOTAL, width)
    data[FILLED:] = float("nan")
    return data


def offsets() -> Tensor:
    return torch.tensor([0, *LENGTHS]).cumsum(0)


@pytest.mark.parametrize("limit", [None, 11])
def test_times_matrices(limit: int | None) -> None:
    x, dense, bias = values(25), torch.randn(len(LENGTHS), 25, 40), torch.randn(len(LENGTHS), 40)
    out = dense_bmm.forward(x, offsets(), dense, bias, limit)
    exact = eager_dense_bmm.forward(x.double(), offsets(), dense.double(), bias.double(), limit)
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("limit", [None, 11])
def test_transposed_product_and_sums(limit: int | None) -> None:
    x, y, dense = values(25), values(40), torch.randn(len(LENGTHS), 25, 40)
    out = jagged_bmm.forward(x, y, offsets(), limit)
    exact = eager_jagged_bmm.forward(x.double(), y.double(), offsets(), limit)
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-5)

    grads = dense_bmm.backward(y, x, offsets(), dense, True, limit, True, True)
    exact_grads = eager_dense_bmm.backward(
        y.double(), x.double(), offsets(), dense.double(), True, limit, True, True
    )
    for grad, exact in zip(grads, exact_grads, strict=True):
        torch.testing.assert_close(grad.double(), exact, rtol=1e-5, atol=1e-5)
