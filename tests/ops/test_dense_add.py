import torch

import jagged

OFFSETS = torch.tensor([0, 3, 3, 4])


def test_by_hand(device: torch.device) -> None:
    """Elements past N keep their value and gradient; uncovered cells get gradient 0."""
    nan = float("nan")
    values = torch.tensor([1.0, 2, 3, 4, nan], device=device, requires_grad=True)
    dense = torch.tensor([[10.0, 20], [30, 40], [50, 60]], device=device, requires_grad=True)
    out = jagged.ops.dense_add(values, OFFSETS.to(device), dense)
    assert out.tolist() == [11, 22, 3, 54, 0]
    out.backward(torch.tensor([1.0, 2, 3, 4, nan], device=device))
    assert values.grad is not None
    assert values.grad.tolist() == [1, 2, 3, 4, 0]
    assert dense.grad is not None
    assert dense.grad.tolist() == [[1, 2], [0, 0], [4, 0]]


def test_one_place_is_not_broadcast_along_the_row(device: torch.device) -> None:
    """A dense operand of one place is N = 1: the row's first element gets it, `row_add` all."""
    values = torch.zeros(4, 2, device=device)
    dense = torch.ones(3, 1, 2, device=device)
    out = jagged.ops.dense_add(values, OFFSETS.to(device), dense)
    assert out[:, 0].tolist() == [1, 0, 0, 1]


def test_numbers_in_uncovered_cells_stay_there(device: torch.device) -> None:
    dense = torch.full((3, 4), float("nan"), device=device)
    dense[0, :3], dense[2, :1] = 1, 1
    out = jagged.ops.dense_add(torch.zeros(4, device=device), OFFSETS.to(device), dense)
    assert out.tolist() == [1, 1, 1, 1]
