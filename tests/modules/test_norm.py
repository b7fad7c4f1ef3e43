"""The three layer norms against torch's own."""

import pytest
import torch
from torch import Tensor, nn

from jagged import JaggedTensor, modules
from jagged.testing import random_jagged, row_slices
from tests.modules.catalogue import randomised

LENGTHS = [4, 0, 1, 6]


def row_norm(layer: nn.Module, x: JaggedTensor) -> Tensor:
    """Mean and variance over everything in a row, one row after the other."""
    rows = []
    for part in row_slices(x.offsets):
        row = x.values[part]
        if row.shape[0] > 0:
            row = nn.functional.layer_norm(row, row.shape, eps=layer.eps)
        rows.append(row)
    return affine(layer, torch.cat(rows))


def token_norm(layer: nn.Module, x: JaggedTensor) -> Tensor:
    return nn.functional.layer_norm(x.values, (6,), layer.weight, layer.bias, layer.eps)


def head_norm(layer: nn.Module, x: JaggedTensor) -> Tensor:
    return nn.functional.group_norm(x.values, 2, layer.weight, layer.bias, layer.eps)


def affine(layer: nn.Module, values: Tensor) -> Tensor:
    values = values if layer.weight is None else values * layer.weight
    return values if layer.bias is None else values + layer.bias


NORMS = {
    "row": (modules.JaggedLayerNorm, 6, (6,), row_norm),
    "token": (modules.TokenLayerNorm, 6, (6,), token_norm),
    "head": (modules.HeadLayerNorm, 2, (2, 3), head_norm),
}


@pytest.mark.parametrize("norm", list(NORMS))
@pytest.mark.parametrize(("scale", "shift"), [(True, True), (True, False), (False, False)])
def test_against_torch(norm: str, scale: bool, shift: bool) -> None:
    build, size, features, reference = NORMS[norm]
    layer = randomised(build(size, 1e-3, scale, shift).double())
    assert (layer.weight is not None, layer.bias is not None) == (scale, shift)
    x = random_jagged(LENGTHS, *features, dtype=torch.float64)
    x.values.requires_grad_()
    inputs = [x.values, *layer.parameters()]
    out, want = layer(x).values, reference(layer, x)
    torch.testing.assert_close(out, want)
    weight = torch.randn_like(want)
    grads = torch.autograd.grad((out * weight).sum(), inputs)
    want_grads = torch.autograd.grad((want * weight).sum(), inputs)
    for grad, want_grad in zip(grads, want_grads, strict=True):
        torch.testing.assert_close(grad, want_grad)


@pytest.mark.parametrize("norm", list(NORMS))
def test_bfloat16_values_keep_float32_parameters(norm: str) -> None:
    build, size, features, _ = NORMS[norm]
    layer = randomised(build(size))
    x = random_jagged(LENGTHS, *features, dtype=torch.bfloat16)
    out = layer(x).values
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(
        out.float(), layer(x.with_values(x.values.float())).values, rtol=1e-2, atol=1e-2
    )
    out.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in layer.parameters())


@pytest.mark.parametrize("norm", list(NORMS))
def test_parameters_of_another_dtype_are_refused(norm: str) -> None:
    build, size, features, _ = NORMS[norm]
    layer, x = build(size), random_jagged(LENGTHS, *features)
    for dtype, values in ((torch.float32, x.to(torch.float64)), (torch.float64, x)):
        with pytest.raises(TypeError, match="weight must have the dtype of values"):
            layer.to(dtype)(values)
    with pytest.raises(TypeError, match=r"values must be float32, .* got torch\.int64"):
        layer(x.to(torch.int64))


def test_initial_values_and_names() -> None:
    for build in (modules.JaggedLayerNorm, modules.TokenLayerNorm, modules.HeadLayerNorm):
        state = build(3).state_dict()
        assert {name: value.tolist() for name, value in state.items()} == {
            "weight": [1.0, 1.0, 1.0],
            "bias": [0.0, 0.0, 0.0],
        }
        assert list(build(3, bias=False).state_dict()) == ["weight"]
        assert list(build(3, affine=False).state_dict()) == []


def test_messages() -> None:
    for build in (modules.JaggedLayerNorm, modules.TokenLayerNorm):
        with pytest.raises(
            ValueError,
            match=r"x.values must have shape \[T, embedding_dim\].*: build the layer for",
        ):
            build(5)(random_jagged([2], 4))
    with pytest.raises(ValueError, match=r"\[T, num_heads, V\] = \[any, 3, any\], got \[2, 4\]"):
        modules.HeadLayerNorm(3)(random_jagged([2], 4))
    with pytest.raises(ValueError, match=r"eps must not be negative, got -1\.0"):
        modules.TokenLayerNorm(3, -1.0)
    for eps in (float("inf"), float("nan")):  # as in the op, but where the layer is built
        with pytest.raises(ValueError, match=f"eps must be finite, got {eps}"):
            modules.TokenLayerNorm(3, eps)


def test_repr() -> None:
    assert (
        repr(modules.TokenLayerNorm(8, bias=False))
        == "TokenLayerNorm(8, eps=1e-05, affine=True, bias=False)"
    )
