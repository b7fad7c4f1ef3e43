import pytest
import torch

import jagged
from tests.ops.battery import assert_near, widest


def test_by_hand(device: torch.device) -> None:
    values = torch.tensor([[1.0, 3.0], [5.0, 5.0], [0.0, -4.0]], device=device)
    weight, bias = torch.tensor([[2.0, 10.0], [0.5, -1.0]], device=device)
    out = jagged.ops.token_layer_norm(values, weight, bias, eps=1e-12)
    torch.testing.assert_close(out.cpu(), torch.tensor([[-1.5, 9.0], [0.5, -1.0], [2.5, -11.0]]))


@pytest.mark.parametrize("affine", [False, True], ids=["plain", "affine"])
def test_against_torch(affine: bool, device: torch.device) -> None:
    values = torch.randn(9, 5, device=device, dtype=widest(device), requires_grad=True)
    layer = torch.nn.LayerNorm(5, elementwise_affine=affine).to(device, widest(device))
    if affine:
        torch.nn.init.normal_(layer.weight)
        torch.nn.init.normal_(layer.bias)
    out = jagged.ops.token_layer_norm(values, layer.weight, layer.bias)
    expected = layer(values)
    assert_near(out.detach(), expected.detach())
    leaves = [values, *layer.parameters()]
    grad = torch.randn_like(out)
    pairs = zip(
        torch.autograd.grad(out, leaves, grad),
        torch.autograd.grad(expected, leaves, grad),
        strict=True,
    )
    for one, other in pairs:
        assert_near(one, other)


def test_without_offsets_every_element_is_data(device: torch.device) -> None:
    values = torch.randn(6, 4, device=device)
    assert torch.equal(
        jagged.ops.token_layer_norm(values)[:4],
        jagged.ops.token_layer_norm(values, offsets=torch.tensor([0, 1, 4], device=device))[:4],
    )
    assert jagged.ops.token_layer_norm(values)[4:].abs().min() > 0


def test_zero_variance_without_eps_in_the_tail(device: torch.device) -> None:
    """The tail is not computed with: neither its NaN nor an infinite 1 / std gets anywhere."""
    values = torch.tensor([[1.0, 3.0], [0.0, 0.0]], device=device, requires_grad=True)
    weight = torch.ones(2, device=device, requires_grad=True)
    out = jagged.ops.token_layer_norm(
        values, weight, eps=0.0, offsets=torch.tensor([0, 1], device=device)
    )
    assert out.tolist() == [[-1.0, 1.0], [0.0, 0.0]]
    out.backward(torch.full_like(out, 2.0))
    assert values.grad is not None
    assert values.grad.isfinite().all()
    assert weight.grad is not None
    assert weight.grad.tolist() == [-2.0, 2.0]
