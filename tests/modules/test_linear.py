"""Matrix products against torch, row by row."""

import math

import pytest
import torch

from jagged import JaggedTensor, modules
from jagged.testing import random_jagged, row_slices

LENGTHS = [3, 0, 5, 1]


def test_linear_is_torchs_linear() -> None:
    layer = modules.JaggedLinear(6, 4).double()
    same = torch.nn.Linear(6, 4, dtype=torch.float64)
    same.load_state_dict(layer.state_dict())
    x = random_jagged(LENGTHS, 6, dtype=torch.float64)
    x.values.requires_grad_()
    weight = torch.randn(9, 4, dtype=torch.float64)
    out, want = layer(x).values, same(x.values)
    torch.testing.assert_close(out, want)
    grads = torch.autograd.grad((out * weight).sum(), [x.values, *layer.parameters()])
    want_grads = torch.autograd.grad((want * weight).sum(), [x.values, *same.parameters()])
    for grad, want_grad in zip(grads, want_grads, strict=True):
        torch.testing.assert_close(grad, want_grad)


def test_linear_starts_as_torchs_linear() -> None:
    layer = modules.JaggedLinear(64, 500)
    bound = 1 / math.sqrt(64)
    for parameter in (layer.weight, layer.bias):
        assert parameter is not None
        assert 0.98 * bound < parameter.abs().max() <= bound
        assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    assert modules.JaggedLinear(3, 2, bias=False).bias is None


@pytest.mark.parametrize("bias", [True, False])
def test_per_row_linear_makes_its_weights_from_the_context(bias: bool) -> None:
    layer = modules.PerRowLinear(6, 4, 3, bias).double()
    if layer.to_bias is not None:
        torch.nn.init.normal_(layer.to_bias.weight)
    x = random_jagged(LENGTHS, 6, dtype=torch.float64)
    context = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    x.values.requires_grad_()
    assert layer.to_weight is not None
    rows = []
    for index, row in enumerate(row_slices(x.offsets)):
        weight = (layer.to_weight.weight @ context[index] + layer.to_weight.bias).reshape(6, 4)
        out = x.values[row] @ weight
        if layer.to_bias is not None:
            out = out + layer.to_bias.weight @ context[index] + layer.to_bias.bias
        rows.append(out)
    want, out = torch.cat(rows), layer(x, context).values
    torch.testing.assert_close(out, want)
    inputs = [x.values, context, *layer.parameters()]
    random = torch.randn_like(want)
    grads = torch.autograd.grad((out * random).sum(), inputs)
    want_grads = torch.autograd.grad((want * random).sum(), inputs)
    for grad, want_grad in zip(grads, want_grads, strict=True):
        torch.testing.assert_close(grad, want_grad)


def test_per_row_linear_with_given_weights_by_hand() -> None:
    layer = modules.PerRowLinear(2, 1)
    assert list(layer.parameters()) == []
    x = JaggedTensor(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([0, 2, 2, 3]))
    weight = torch.tensor([[[1.0], [10.0]], [[0.0], [0.0]], [[-1.0], [1.0]]])
    assert layer(x, weight).values.tolist() == [[21.0], [43.0], [1.0]]
    row_bias = torch.tensor([[100.0], [200.0], [300.0]])
    assert layer(x, weight, row_bias).values.tolist() == [[121.0], [143.0], [301.0]]


def test_per_row_linear_keeps_the_variance_at_the_start() -> None:
    """Half of Xavier's variance comes from the weights all rows share, half from the context."""
    layer = modules.PerRowLinear(64, 64, 16)
    x = random_jagged([20] * 50, 64)
    out = layer(x, torch.randn(50, 16)).values
    assert out.var().item() == pytest.approx(2.0, rel=0.15)
    shared = layer(x, torch.zeros(50, 16)).values
    assert shared.var().item() == pytest.approx(1.0, rel=0.15)


def test_bmm_against_a_loop() -> None:
    layer = modules.JaggedBMM()
    x = random_jagged(LENGTHS, 6, dtype=torch.float64)
    y = random_jagged(LENGTHS, 3, dtype=torch.float64, seed=1)
    dense = torch.randn(4, 6, 2, dtype=torch.float64)
    rows = row_slices(x.offsets)
    out = layer(x, dense)
    assert isinstance(out, JaggedTensor)
    want = torch.cat([x.values[row] @ dense[index] for index, row in enumerate(rows)])
    torch.testing.assert_close(out.values, want)
    want = torch.stack([x.values[row].T @ y.values[row] for row in rows])
    torch.testing.assert_close(layer(x, y), want)


def test_bmm_stops_rows_at_max_length() -> None:
    layer = modules.JaggedBMM(2)
    x = JaggedTensor(torch.tensor([[1.0], [2.0], [4.0], [8.0]]), torch.tensor([0, 3, 4]))
    assert layer(x, x).flatten().tolist() == [5.0, 64.0]
    assert layer(x, torch.ones(2, 1, 1)).values.flatten().tolist() == [1.0, 2.0, 0.0, 8.0]


def test_autocast_casts_the_operands_of_products() -> None:
    x, dense = random_jagged(LENGTHS, 6), torch.randn(4, 6, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert modules.JaggedBMM()(x, dense).values.dtype == torch.bfloat16
        assert modules.JaggedBMM()(x, x).dtype == torch.bfloat16
        assert modules.JaggedLinear(6, 2)(x).values.dtype == torch.bfloat16
        assert modules.PerRowLinear(6, 2, 3)(x, torch.randn(4, 3)).values.dtype == torch.bfloat16
        double = x.to(dtype=torch.float64)  # which autocast leaves alone, in torch as well
        assert modules.JaggedBMM()(double, double).dtype == torch.float64


def test_messages() -> None:
    x = random_jagged(LENGTHS, 6)
    with pytest.raises(ValueError, match=r"x.values must have shape \[T, in_features\].*\[9, 6\]"):
        modules.JaggedLinear(5, 2)(x)
    with pytest.raises(ValueError, match=r"context must have shape \[B, context_dim\] = \[4, 3\]"):
        modules.PerRowLinear(6, 2, 3)(x, torch.randn(4, 2))
    with pytest.raises(ValueError, match="row_bias must not be given to a layer with context_dim"):
        modules.PerRowLinear(6, 2, 3)(x, torch.randn(4, 3), torch.randn(4, 2))
    with pytest.raises(
        ValueError, match=r"weight must have shape \[B, in_features, out_features\]"
    ):
        modules.PerRowLinear(6, 2)(x, torch.randn(4, 6, 3))
    for call, name in (
        (lambda: modules.PerRowLinear(6, 2, 3)(x, [[1.0]]), "context"),  # type: ignore[arg-type]
        (lambda: modules.PerRowLinear(6, 2)(x, None), "weight"),  # type: ignore[arg-type]
        (lambda: modules.PerRowLinear(6, 2)(x, torch.randn(4, 6, 2), [1.0]), "row_bias"),  # type: ignore[arg-type]
        (lambda: modules.JaggedBMM()(x, [1.0]), "y"),  # type: ignore[arg-type]
    ):
        with pytest.raises(
            TypeError, match=rf"{name} must be a torch\.Tensor, got (list|NoneType)"
        ):
            call()
    with pytest.raises(ValueError, match=r"y must have as many rows as x \(4\), got 2"):
        modules.JaggedBMM()(x, random_jagged([4, 5], 6))


def test_repr_and_names() -> None:
    assert repr(modules.JaggedLinear(3, 2)) == "JaggedLinear(3, 2, bias=True)"
    assert repr(modules.JaggedBMM(4)) == "JaggedBMM(max_length=4)"
    assert "3, 2, context_dim=4, bias=True" in repr(modules.PerRowLinear(3, 2, 4))
    assert list(modules.JaggedLinear(3, 2).state_dict()) == ["weight", "bias"]
    assert list(modules.PerRowLinear(3, 2, 4).state_dict()) == [
        "to_weight.weight",
        "to_weight.bias",
        "to_bias.weight",
        "to_bias.bias",
    ]
