import torch

import jagged

OFFSETS = torch.tensor([0, 3, 3, 4])


def test_by_hand(device: torch.device) -> None:
    """Padding cells are the dense operand; elements past N are dropped and get gradient 0."""
    nan = float("nan")
    values = torch.tensor([1.0, 2, nan, 4, nan], device=device, requires_grad=True)
    dense = torch.tensor([[10.0, 20], [30, 40], [50, 60]], device=device, requires_grad=True)
    out = jagged.ops.padded_add(values, OFFSETS.to(device), dense)
    assert out.tolist() == [[11, 22], [30, 40], [54, 60]]
    out.backward(torch.tensor([[1.0, 2], [3, 4], [5, 6]], device=device))
    assert values.grad is not None
    assert values.grad.tolist() == [1, 2, 0, 5, 0]
    assert dense.grad is not None
    assert dense.grad.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_the_two_gradients_are_not_one_tensor(device: torch.device) -> None:
    values = torch.zeros(4, device=device, requires_grad=True)
    dense = torch.zeros(3, 2, device=device, requires_grad=True)
    out = jagged.ops.padded_add(values, OFFSETS.to(device), dense)
    one, other = torch.autograd.grad(out, [values, dense], torch.ones_like(out))
    one.fill_(7)
    assert other.tolist() == [[1, 1]] * 3
