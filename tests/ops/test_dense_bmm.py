import random

import pytest
import torch

import jagged
from jagged.eager._pieces import pieces
from jagged.testing import assert_accurate, dense_bmm_oracle


def test_by_hand(device: torch.device) -> None:
    nan = float("nan")
    values = torch.tensor([[1.0, 2], [3, 4], [5, 6], [nan, nan]], device=device)
    offsets = torch.tensor([0, 1, 1, 3], device=device)
    dense = torch.tensor([[[1.0], [10]], [[nan], [nan]], [[2.0], [0]]], device=device)
    bias = torch.tensor([[100.0], [nan], [0.5]], device=device)
    assert jagged.ops.dense_bmm(values, offsets, dense).tolist() == [[21], [6], [10], [0]]
    out = jagged.ops.dense_bmm(values, offsets, dense, bias, max_length=1)
    assert out.tolist() == [[121], [6.5], [0], [0]]


def test_a_number_for_each_row(device: torch.device) -> None:
    """Rows times one number each: nested tensors had no gradient for it."""
    values = torch.cat([torch.arange(20.0), torch.arange(12.0) * 10])[:, None].to(device)
    offsets = torch.tensor([0, 20, 32], device=device)
    dense = torch.tensor([10.0, 100.0], device=device).reshape(2, 1, 1).requires_grad_()
    out = jagged.ops.dense_bmm(values, offsets, dense)
    assert out.flatten()[[1, 21]].tolist() == [10, 1000]
    out.sum().backward()
    assert dense.grad is not None
    assert dense.grad.flatten().tolist() == [190, 660]


def test_gradients_of_an_empty_row_and_past_the_limit(device: torch.device) -> None:
    values = torch.ones(5, 2, device=device, requires_grad=True)
    dense = torch.ones(3, 2, 2, device=device, requires_grad=True)
    bias = torch.zeros(3, 2, device=device, requires_grad=True)
    offsets = torch.tensor([0, 4, 4, 5], device=device)
    jagged.ops.dense_bmm(values, offsets, dense, bias, 3).sum().backward()
    assert values.grad is not None
    assert values.grad[:, 0].tolist() == [2, 2, 2, 0, 2]
    assert dense.grad is not None
    assert dense.grad[:, 0, 0].tolist() == [3, 0, 1]
    assert bias.grad is not None
    assert bias.grad[:, 0].tolist() == [3, 0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("k", "n"), [(64, 48), (1, 7), (25, 130), (512, 16), (128, 16), (16, 128), (300, 513)]
)
def test_accuracy_of_wide_products(
    k: int, n: int, dtype: torch.dtype, device: torch.device
) -> None:
    """fbgemm accumulates in bfloat16; a matrix of 512 x 16 held whole was wrong on an H200."""
    offsets = torch.tensor([0, 30, 30, 31, 60], device=device)
    values = torch.randn(60, k).to(device, dtype)
    dense = torch.randn(4, k, n).to(device, dtype)
    bias = torch.randn(4, n).to(device, dtype)
    out = jagged.ops.dense_bmm(values, offsets, dense, bias)
    exact = dense_bmm_oracle(values.double(), offsets, dense.double(), bias.double())
    plain = dense_bmm_oracle(values.float(), offsets, dense.float(), bias.float()).to(dtype)
    assert_accurate(out, exact, plain)


def test_the_pieces_of_the_eager_product_are_bounded() -> None:
    """One long row among many short ones must not cost B times the longest."""
    generator = random.Random(0)
    for _ in range(300):
        rows = generator.randint(1, 12)
        longest = generator.choice([1, 3, 200])
        lengths = [generator.choice([0, 1, generator.randint(0, longest)]) for _ in range(rows)]
        total = max(sum(lengths), 1)
        cut = pieces(torch.tensor([0, *lengths]).cumsum(0), total, None)
        assert cut.source.numel() <= 2 * total + rows
        assert cut.row.numel() <= 2 * rows
        assert int((~cut.padding).sum()) == sum(lengths)
