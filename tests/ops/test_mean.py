import pytest
import torch

import jagged
from tests.ops.tables import TABLES, Table


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("table", TABLES, ids=str)
def test_truth_tables(table: Table, dtype: torch.dtype, device: torch.device) -> None:
    """The peers give NaN for an empty row; nested tensors lack the gradient, 1 / length."""
    values, offsets = table.tensors(device, dtype)
    values.requires_grad_()
    out = jagged.ops.mean(values, offsets)
    assert torch.equal(out.float(), table.answer("mean", device))
    out.sum().backward()
    assert values.grad is not None
    shares = torch.tensor(table.shares, device=device).to(dtype)
    expected = shares.reshape(-1, *(1,) * len(table.shape)).expand_as(values)
    assert torch.equal(values.grad, expected)


def test_gradient_with_elements_past_the_last_row(device: torch.device) -> None:
    """pytorch_scatter's case: offsets [0, 3, 7] on eight elements."""
    values = torch.randn(8, device=device, requires_grad=True)
    jagged.ops.mean(values, torch.tensor([0, 3, 7], device=device)).sum().backward()
    assert values.grad is not None
    torch.testing.assert_close(values.grad.cpu(), torch.tensor([1 / 3] * 3 + [1 / 4] * 4 + [0.0]))
