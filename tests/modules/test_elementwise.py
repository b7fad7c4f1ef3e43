"""Softmax, sums with dense tensors and dropout."""

import pytest
import torch

from jagged import JaggedTensor, modules
from jagged.testing import random_jagged

OFFSETS = torch.tensor([0, 2, 2, 3])


def test_softmax_by_hand() -> None:
    x = JaggedTensor(torch.tensor([0.0, 3.0, 5.0]).log(), OFFSETS)
    out = modules.JaggedSoftmax()(x)
    assert out.offsets is x.offsets
    torch.testing.assert_close(out.values, torch.tensor([0.0, 1.0, 1.0]))
    x = x.with_values(torch.tensor([1.0, 3.0, 5.0]).log())
    torch.testing.assert_close(modules.JaggedSoftmax()(x).values, torch.tensor([0.25, 0.75, 1.0]))
    torch.testing.assert_close(modules.JaggedSoftmax(1)(x).values, torch.tensor([1.0, 0.0, 1.0]))


def test_sums_by_hand() -> None:
    x = JaggedTensor(torch.tensor([[1.0], [2.0], [3.0]]), OFFSETS)
    dense = torch.tensor([[[10.0]], [[20.0]], [[30.0]]])  # [B, N = 1, 1]
    added = modules.JaggedDenseAdd()(x, dense)
    assert isinstance(added, JaggedTensor)
    assert added.values.tolist() == [[11.0], [2.0], [33.0]]
    assert modules.JaggedDenseAdd("padded")(x, dense).tolist() == [[[11.0]], [[20.0]], [[33.0]]]
    assert modules.JaggedRowAdd()(x, dense[:, 0]).values.tolist() == [[11.0], [12.0], [33.0]]


def test_mixed_dtypes_are_refused_outside_autocast_and_widened_inside() -> None:
    x, dense = random_jagged([2, 1], 3, dtype=torch.bfloat16), torch.randn(2, 3)
    layer = modules.JaggedRowAdd()
    with pytest.raises(TypeError, match="dense must have the dtype of values"):
        layer(x, dense)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x, dense).values
    want = x.values.float() + dense[[0, 0, 1]]
    assert out.dtype == torch.float32
    assert torch.equal(out, want)


def test_dropout_in_training() -> None:
    x = JaggedTensor(torch.ones(50_000, 2), torch.tensor([0, 10_000, 40_000]))
    out = modules.JaggedDropout(0.3).train()(x).values
    inside = out[:40_000]
    assert inside.unique().tolist() == [0.0, pytest.approx(1 / 0.7)]
    assert (inside == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert (out[40_000:] == 0).all()
    # Entries are dropped one by one, not whole elements.
    assert (inside[:, 0] == inside[:, 1]).float().mean().item() == pytest.approx(0.58, abs=0.01)


def test_dropout_in_evaluation_and_its_gradient() -> None:
    x = random_jagged([3, 0, 2], 4, tail=1)
    layer = modules.JaggedDropout(0.5)
    assert torch.equal(layer.eval()(x).values[:5], x.values[:5])
    values = x.values.clone().requires_grad_()
    out = layer.train()(x.with_values(values)).values
    out.sum().backward()
    assert values.grad is not None
    assert torch.equal(values.grad, torch.where(out.detach() == 0, 0.0, 2.0))


def test_messages() -> None:
    x = random_jagged([2, 1], 3)
    with pytest.raises(ValueError, match="max_length must not be negative, got -1"):
        modules.JaggedSoftmax(-1)
    with pytest.raises(ValueError, match="max_length must not be negative, got -1"):
        modules.JaggedBMM(-1)
    for layer in (modules.JaggedDenseAdd(), modules.JaggedRowAdd()):
        with (
            torch.autocast("cpu", torch.bfloat16),
            pytest.raises(TypeError, match=r"dense must be a torch\.Tensor, got list"),
        ):
            layer(x, [1.0])
    with pytest.raises(ValueError, match='result must be "jagged" or "padded", got \'dense\''):
        modules.JaggedDenseAdd("dense")  # type: ignore[arg-type]
    for p in (-0.1, 1.0):
        with pytest.raises(ValueError, match=rf"p must be in \[0, 1\), got {p}"):
            modules.JaggedDropout(p)


def test_repr() -> None:
    assert repr(modules.JaggedSoftmax()) == "JaggedSoftmax()"
    assert repr(modules.JaggedSoftmax(4)) == "JaggedSoftmax(max_length=4)"
    assert repr(modules.JaggedDenseAdd()) == "JaggedDenseAdd(result='jagged')"
    assert repr(modules.JaggedDropout(0.1)) == "JaggedDropout(p=0.1)"
