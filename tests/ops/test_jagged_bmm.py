import pytest
import torch

import jagged
from jagged.testing import assert_accurate, jagged_bmm_oracle
from tests.ops.tables import TABLES, Table


def test_by_hand(device: torch.device) -> None:
    nan = float("nan")
    x = torch.tensor([[1.0, 2], [3, 4], [5, 6], [nan, nan]], device=device)
    y = torch.tensor([[1.0], [10], [100], [nan]], device=device)
    offsets = torch.tensor([0, 2, 2, 3], device=device)
    out = jagged.ops.jagged_bmm(x, y, offsets)
    assert out.tolist() == [[[31], [42]], [[0], [0]], [[500], [600]]]
    out = jagged.ops.jagged_bmm(x, y, offsets, max_length=1)
    assert out.tolist() == [[[1], [2]], [[0], [0]], [[500], [600]]]


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_truth_tables(table: Table, device: torch.device) -> None:
    """With ones it is a sum."""
    values, offsets = table.tensors(device)
    flat = values.reshape(len(table.shares), -1) if len(table.shares) else values.reshape(0, 2)
    out = jagged.ops.jagged_bmm(flat, torch.ones(len(flat), 1, device=device), offsets)
    assert torch.equal(out.flatten(), table.answer("sum", device).flatten())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("m", "n"), [(64, 48), (1, 7), (25, 130)])
def test_accuracy_of_long_rows(m: int, n: int, dtype: torch.dtype, device: torch.device) -> None:
    offsets = torch.tensor([0, 500, 500, 501, 620], device=device)
    x, y = torch.randn(620, m).to(device, dtype), torch.randn(620, n).to(device, dtype)
    out = jagged.ops.jagged_bmm(x, y, offsets)
    exact = jagged_bmm_oracle(x.double(), y.double(), offsets)
    plain = jagged_bmm_oracle(x.float(), y.float(), offsets).to(dtype)
    assert_accurate(out, exact, plain)


def test_one_tensor_as_both_operands(device: torch.device) -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device, requires_grad=True)
    out = jagged.ops.jagged_bmm(x, x, torch.tensor([0, 2], device=device))
    assert out.tolist() == [[[10, 14], [14, 20]]]
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[6, 6], [14, 14]]
