import pytest
import torch

import jagged
from tests.ops.tables import TABLES, Table


def test_by_hand(device: torch.device) -> None:
    values = torch.tensor([1.0, 2, 3, 4, float("nan")], device=device)
    dense = torch.tensor([10.0, 20, 30], device=device)
    out = jagged.ops.row_add(values, torch.tensor([0, 3, 3, 4], device=device), dense)
    assert out.tolist() == [11, 12, 13, 34, 0]


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_truth_tables(table: Table, device: torch.device) -> None:
    """The gradient of the dense operand is the sum of the row, that of the values unchanged."""
    incoming, offsets = table.tensors(device)
    values = torch.zeros_like(incoming, requires_grad=True)
    dense = table.answer("sum", device).requires_grad_()
    out = jagged.ops.row_add(values, offsets, dense)
    grad_values, grad_dense = torch.autograd.grad(out, [values, dense], incoming)
    assert torch.equal(grad_dense, table.answer("sum", device))
    assert torch.equal(grad_values, incoming.nan_to_num())
