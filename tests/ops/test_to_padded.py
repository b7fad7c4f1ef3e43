import pytest
import torch

import jagged
from tests.ops.tables import TABLES, Table

UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]  # torch itself fills and masks none of them
INTEGERS = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, *UNSIGNED
]  # fmt: skip


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_truth_tables(table: Table, device: torch.device) -> None:
    values, offsets = table.tensors(device)
    out = jagged.ops.to_padded(values, offsets, 2, 9)
    assert torch.equal(out, table.answer("padded", device))


def test_one_number_an_element_with_gradient(device: torch.device) -> None:
    """fbgemm's backward failed for it."""
    values = torch.tensor([5.0, 3, 7, 1], device=device, requires_grad=True)
    out = jagged.ops.to_padded(values, torch.tensor([0, 1, 4], device=device), 2)
    assert out.tolist() == [[5, 0], [3, 7]]
    out.backward(torch.tensor([[1.0, 2], [3, 4]], device=device))
    assert values.grad is not None
    assert values.grad.tolist() == [1, 3, 4, 0]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_ids_and_flags(dtype: torch.dtype, device: torch.device) -> None:
    values = torch.tensor([1, 0, 1, 1], device=device).to(dtype)
    out = jagged.ops.to_padded(values, torch.tensor([0, 2, 2, 4], device=device), 3, 1)
    assert out.dtype == dtype
    assert out.tolist() == [[1, 0, 1], [1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
def test_padding_past_the_signed_numbers(dtype: torch.dtype, device: torch.device) -> None:
    half = 2 ** (8 * dtype.itemsize - 1)
    offsets = torch.tensor([0, 0, 1], device=device)
    out = jagged.ops.to_padded(torch.ones(1, dtype=dtype, device=device), offsets, 2, half)
    assert out.tolist() == [[half, half], [1, half]]


def test_large_ids_are_exact(device: torch.device) -> None:
    """They would lose their last bits on the way through a float."""
    values = torch.tensor([2**53 + 1, -(2**62) - 1], device=device)
    out = jagged.ops.to_padded(values, torch.tensor([0, 1, 2], device=device), 2, -1)
    assert out.tolist() == [[2**53 + 1, -1], [-(2**62) - 1, -1]]


@pytest.mark.parametrize("padding", [float("nan"), float("inf"), -float("inf"), -0.5])
def test_any_padding(padding: float, device: torch.device) -> None:
    out = jagged.ops.to_padded(
        torch.ones(1, device=device), torch.tensor([0, 0, 1], device=device), 1, padding
    )
    torch.testing.assert_close(out.cpu(), torch.tensor([[padding], [1.0]]), equal_nan=True)


def test_the_transpose_of_a_transpose(device: torch.device) -> None:
    """FBGEMM once gave wrong rows for values that were not contiguous."""
    values = torch.randn(4, 3, device=device)
    offsets = torch.tensor([0, 1, 4], device=device)
    again = values.t().contiguous().t().contiguous()
    assert torch.equal(
        jagged.ops.to_padded(again, offsets, 3), jagged.ops.to_padded(values, offsets, 3)
    )


def test_more_than_two_to_the_31_numbers(device: torch.device) -> None:
    """Peers fail or silently write NaN where row times stride leaves 32 bits."""
    if device.type != "cuda":
        pytest.skip("takes 5 GB of a GPU")
    rows, length, width = 1024, 2049, 1024
    lengths = torch.full((rows,), 2, device=device)
    lengths[-1] = length
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).to(torch.int32)
    values = torch.randn(int(offsets[-1]), width, device=device, dtype=torch.bfloat16)
    out = jagged.ops.to_padded(values, offsets, length)
    assert out.numel() > 2**31
    assert torch.equal(out[-1], values[-length:])
    assert torch.equal(out[-2, :2], values[-length - 2 : -length])
    assert not out[-2, 2:].any()
    assert torch.equal(jagged.ops.from_padded(out, offsets, values.shape[0]), values)
