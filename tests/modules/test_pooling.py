"""Pooling against numbers written by hand and against a loop over rows."""

import math

import pytest
import torch

from jagged import JaggedTensor, modules
from jagged.testing import random_jagged, row_slices


def test_truth_table() -> None:
    values = torch.tensor([[1.0, 10.0], [2.0, 20.0], [6.0, 60.0], [5.0, 50.0]])
    x = JaggedTensor(values, torch.tensor([0, 3, 3, 4]))
    assert modules.SumPooling()(x).tolist() == [[9.0, 90.0], [0.0, 0.0], [5.0, 50.0]]
    assert modules.MeanPooling()(x).tolist() == [[3.0, 30.0], [0.0, 0.0], [5.0, 50.0]]
    assert modules.LastPooling()(x).tolist() == [[6.0, 60.0], [0.0, 0.0], [5.0, 50.0]]


@pytest.mark.parametrize("lengths", [[], [0], [0, 0], [0, 1, 0, 3, 0]])
@pytest.mark.parametrize("tail", [0, 2])
def test_last_of_odd_batches(lengths: list[int], tail: int) -> None:
    x = random_jagged(lengths, 2, dtype=torch.float64, tail=tail)
    x.values.requires_grad_()
    out = modules.LastPooling()(x)
    assert out.shape == (len(lengths), 2)
    out.sum().backward()
    gradient = torch.zeros(x.values.shape[0], dtype=torch.float64)
    for place, row in enumerate(row_slices(x.offsets)):
        assert out[place].tolist() == (x.values[row][-1].tolist() if lengths[place] else [0.0, 0.0])
        if lengths[place]:
            gradient[row][-1] = 1.0
    assert x.values.grad is not None
    assert x.values.grad.tolist() == gradient[:, None].expand(-1, 2).tolist()


def test_attention_pooling_by_hand() -> None:
    """One head of 4 features: scores <query, x> / 2 = ln 3 and 0, so weights 3/4 and 1/4."""
    pool = modules.AttentionPooling(4)
    with torch.no_grad():
        pool.query.copy_(torch.tensor([[2 * math.log(3.0), 0.0, 0.0, 0.0]]))
    x = JaggedTensor(
        torch.tensor([[1.0, 4.0, 0.0, 8.0], [0.0, 8.0, 4.0, 0.0]]), torch.tensor([0, 0, 2])
    )
    torch.testing.assert_close(pool(x), torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.75, 5.0, 1.0, 6.0]]))


@pytest.mark.parametrize("heads", [1, 2, 6])
def test_attention_pooling_against_a_loop(heads: int) -> None:
    x = random_jagged([4, 0, 1, 7], 6, dtype=torch.float64)
    x.values.requires_grad_()
    pool = modules.AttentionPooling(6, heads).double()
    out = pool(x)
    rows = []
    for row in row_slices(x.offsets):
        parts = []
        for head, part in enumerate(x.values[row].chunk(heads, dim=1)):
            weight = torch.softmax(part @ pool.query[head] / math.sqrt(6 / heads), dim=0)
            parts.append(weight @ part)
        rows.append(torch.cat(parts))
    want = torch.stack(rows)
    torch.testing.assert_close(out, want)
    inputs = (x.values, pool.query)
    grads = torch.autograd.grad((out * out).sum(), inputs)
    want_grads = torch.autograd.grad((want * want).sum(), inputs)
    for grad, want_grad in zip(grads, want_grads, strict=True):
        torch.testing.assert_close(grad, want_grad)


def test_attention_in_the_dtype_of_its_values() -> None:
    pool, x = modules.AttentionPooling(6, 2), random_jagged([3, 0, 5], 6)
    want = pool(x)
    out = pool(x.to(torch.bfloat16))
    assert out.dtype == torch.bfloat16
    assert (out.float() - want).norm() < 0.02 * want.norm()
    with pytest.raises(
        TypeError, match=r"query must .* x.values \(torch.float64\), got torch.float32"
    ):
        pool(x.to(torch.float64))
    with pytest.raises(TypeError, match=r"x.values must be float32, .* got torch.int64"):
        pool(x.to(torch.int64))


def test_attention_without_features() -> None:
    assert modules.AttentionPooling(0)(random_jagged([2, 0], 0)).shape == (2, 0)


def test_messages() -> None:
    with pytest.raises(ValueError, match="num_heads must divide embedding_dim, got 4 heads for 6"):
        modules.AttentionPooling(6, 4)
    with pytest.raises(
        ValueError, match=r"x.values must have shape \[T, embedding_dim\].*got \[2, 3\]"
    ):
        modules.AttentionPooling(4)(random_jagged([2], 3))


def test_repr() -> None:
    assert repr(modules.SumPooling()) == "SumPooling()"
    assert repr(modules.AttentionPooling(8, 2)) == "AttentionPooling(8, num_heads=2)"
    assert list(modules.AttentionPooling(8, 2).state_dict()) == ["query"]
