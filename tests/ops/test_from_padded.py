import pytest
import torch
from hypothesis import given

import jagged
from tests.ops.battery import LENGTHS, Make, widest
from tests.ops.test_to_padded import INTEGERS


def test_by_hand(device: torch.device) -> None:
    """Elements past N and the tail are 0; cells that no element covers get gradient 0."""
    nan = float("nan")
    dense = torch.tensor([[1.0, 2], [nan, nan], [3, nan]], device=device, requires_grad=True)
    out = jagged.ops.from_padded(dense, torch.tensor([0, 3, 3, 4], device=device), 6)
    assert out.tolist() == [1, 2, 0, 3, 0, 0]
    out.backward(torch.tensor([1.0, 2, 3, 4, nan, nan], device=device))
    assert dense.grad is not None
    assert dense.grad.tolist() == [[1, 2], [0, 0], [4, 0]]


@given(lengths=LENGTHS)
def test_there_and_back(device: torch.device, lengths: list[int]) -> None:
    """Nested tensors give an incompatible structure after this round trip."""
    make = Make(lengths, device, widest(device))
    values, offsets = make.jagged(3), make.offsets()
    dense = jagged.ops.to_padded(values, offsets, max(lengths, default=0))
    assert torch.equal(jagged.ops.from_padded(dense, offsets, values.shape[0]), values)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_ids_and_flags(dtype: torch.dtype, device: torch.device) -> None:
    dense = torch.tensor([[1, 0], [1, 1]], device=device).to(dtype)
    out = jagged.ops.from_padded(dense, torch.tensor([0, 2, 3], device=device), 4)
    assert out.dtype == dtype
    assert out.tolist() == [1, 0, 1, 0]


def test_fewer_places_than_elements(device: torch.device) -> None:
    """fbgemm corrupts the heap when `total` is below the number of elements."""
    dense = torch.arange(6.0, device=device).reshape(2, 3)
    for total in range(7):
        out = jagged.ops.from_padded(dense, torch.tensor([0, 3, 6], device=device), total)
        assert out.tolist() == list(range(total))
