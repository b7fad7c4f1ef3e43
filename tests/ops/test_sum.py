import pytest
import torch

import jagged
from tests.ops.tables import TABLES, Table


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("table", TABLES, ids=str)
def test_truth_tables(table: Table, dtype: torch.dtype, device: torch.device) -> None:
    values, offsets = table.tensors(device, dtype)
    values.requires_grad_()
    out = jagged.ops.sum(values, offsets)
    assert out.dtype == dtype
    assert torch.equal(out.float(), table.answer("sum", device))
    out.sum().backward()
    assert values.grad is not None
    ones = [float(share > 0) for share in table.shares]
    assert values.grad.flatten(1).amax(1).tolist() == ones if values.ndim > 1 else True
    assert values.grad.reshape(len(ones), -1).amin(1).tolist() == ones if ones else True


def test_trailing_empty_rows_are_kept(device: torch.device) -> None:
    """dgl dropped them."""
    offsets = torch.tensor([0, 1, 1, 6, 10, 10], device=device)
    out = jagged.ops.sum(torch.ones(10, 3, device=device), offsets)
    assert out.tolist() == [[n] * 3 for n in (1, 0, 5, 4, 0)]


def test_no_elements_at_all(device: torch.device) -> None:
    """torch.segment_reduce refused it: two rows, nothing in them."""
    out = jagged.ops.sum(
        torch.ones(0, 6, device=device), torch.zeros(3, dtype=torch.int64).to(device)
    )
    assert torch.equal(out, torch.zeros(2, 6, device=device))


def test_two_offsets_objects_with_the_same_rows(device: torch.device) -> None:
    """Nested tensors refuse to subtract such a pair."""
    one, other = (torch.tensor([0, 1, 3], device=device) for _ in range(2))
    a, b = torch.tensor([1.0, 2, 3], device=device), torch.ones(3, device=device)
    difference = jagged.ops.sum(a, one) - jagged.ops.sum(b, other)
    assert difference.tolist() == [0, 3]
