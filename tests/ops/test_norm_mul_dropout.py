"""What the battery leaves out: dropout, and the form that production's layer has."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils import checkpoint

import jagged
from jagged.testing import assert_accurate, dropout_keep, norm_mul_dropout_oracle
from tests.ops.battery import (
    Arguments,
    Make,
    OpCase,
    assert_near,
    gradients,
    oracle_gradients,
    outgoing,
    widest,
)

norm_mul_dropout = jagged.ops.norm_mul_dropout
SEED = 0x1234567_89ABCDEF
LENGTHS = [3, 0, 5, 2]


def arguments(make: Make) -> Arguments:
    return {
        "values": make.jagged(12),
        "u": make.jagged(12),
        "weight": make.dense(12),
        "bias": make.dense(12),
        "eps": 0.1,
        "silu": True,
        "concat": True,
        "dropout": 0.3,
        "seed": torch.tensor([SEED], device=make.device),
    }


CASE = OpCase("norm_mul_dropout", arguments, ("values", "u", "weight", "bias"))


def test_by_hand(device: torch.device) -> None:
    values = torch.tensor([[1.0, 3.0], [0.0, -4.0]], device=device)
    u = torch.tensor([[2.0, 3.0], [0.0, -1.0]], device=device)
    weight, bias = torch.tensor([[2.0, 10.0], [0.5, -1.0]], device=device)
    out = norm_mul_dropout(values, u, weight, bias, eps=1e-12)
    assert_near(out.cpu(), torch.tensor([[-3.0, 27.0], [0.0, 11.0]]))
    out = norm_mul_dropout(values, u, weight, bias, eps=1e-12, concat=True)
    assert_near(out.cpu(), torch.tensor([[2.0, 3, 1, 3, -3, 27], [0, -1, 0, -4, 0, 11]]))
    heads = norm_mul_dropout(values[:, None], u[:, None], weight[:1], bias[:1], eps=1e-12)
    assert_near(heads.cpu(), torch.tensor([[-3.0, 7.5], [0.0, 1.5]]))


@pytest.mark.parametrize("affine", [False, True], ids=["plain", "affine"])
@pytest.mark.parametrize("heads", [None, 3], ids=["token", "by_head"])
def test_against_torch(heads: int | None, affine: bool, device: torch.device) -> None:
    """Layer norm or group norm, SiLU, product and concatenation, with all gradients."""
    shape = (7, 5) if heads is None else (7, heads, 5)
    values, u = (
        torch.randn(shape, device=device, dtype=widest(device), requires_grad=True)
        for _ in range(2)
    )
    layer: Any = torch.nn.LayerNorm(5, elementwise_affine=affine)
    if heads is not None:
        layer = torch.nn.GroupNorm(heads, heads, affine=affine)
    layer = layer.to(device, widest(device))
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    gate, normed = functional.silu(u), layer(values)
    expected = torch.cat([part.flatten(1) for part in (gate, values, gate * normed)], 1)
    out = norm_mul_dropout(values, u, layer.weight, layer.bias, silu=True, concat=True)
    assert_near(out.detach(), expected.detach())
    leaves = [values, u, *layer.parameters()]
    grad = torch.randn_like(out)
    pairs = zip(
        torch.autograd.grad(out, leaves, grad),
        torch.autograd.grad(expected, leaves, grad),
        strict=True,
    )
    for one, other in pairs:
        assert_near(one, other)


def test_the_gate_is_a_view_of_a_projection(device: torch.device) -> None:
    """Also with a gradient that is a part of a wider one, and rows that overlap nothing."""
    projection = torch.randn(9, 16, device=device)
    values = torch.randn(9, 2, 4, device=device)
    u = projection[:, 4:12].unflatten(1, (2, 4))
    assert u.data_ptr() != projection.data_ptr()
    out = norm_mul_dropout(values, u, silu=True)
    assert torch.equal(out, norm_mul_dropout(values, u.contiguous(), silu=True))


# Dropout --------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_head", [False, True], ids=["token", "by_head"])
@pytest.mark.parametrize("concat", [False, True], ids=["gated", "concat"])
@pytest.mark.parametrize("dropout", [0.001, 0.3, 0.75, 1 - 1e-12], ids=str)
def test_what_is_kept(dropout: float, concat: bool, by_head: bool, device: torch.device) -> None:
    values = torch.randn(11, 6, device=device)
    values, u = (x.view(11, 2, 3) if by_head else x for x in (values, torch.ones_like(values)))
    whole = norm_mul_dropout(values, u, concat=concat)
    for seed in (SEED, 0, -1, 2**63 - 1, -(2**63)):
        drawn = torch.tensor([seed], device=device)
        out = norm_mul_dropout(values, u, concat=concat, dropout=dropout, seed=drawn)
        keep = dropout_keep(seed, 11, 6, 3 if concat else 1, dropout).to(device)
        assert torch.equal(out != 0, keep)
        torch.testing.assert_close(out[keep], whole[keep] / (1 - dropout))


@pytest.mark.parametrize("tail", [0, 2], ids=["full", "tail"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_dropout_within_the_budget(dtype: torch.dtype, tail: int, device: torch.device) -> None:
    make = Make([3, 0, 25, 7], device, dtype, tail=tail)
    given = CASE.make(make)
    grad = outgoing(CASE, CASE.call(given), make)
    out, grads = gradients(CASE, given, grad, CASE.operands)
    exact, exact_grads = oracle_gradients(CASE, given, grad)
    plain, plain_grads = oracle_gradients(CASE, given, grad, torch.float32)
    assert_accurate(out, exact, plain)
    for name in CASE.operands:
        assert_accurate(grads[name], exact_grads[name], plain_grads[name], name=name)


@pytest.mark.parametrize("options", [{}, {"concat": False, "silu": False}], ids=["all", "few"])
def test_dropout_gradcheck(options: dict[str, bool]) -> None:
    given = CASE.make(Make(LENGTHS, torch.device("cpu"))) | options

    def function(*operands: Tensor) -> Tensor:
        return CASE.call({**given, **dict(zip(CASE.operands, operands, strict=True))})

    leaves = [given[name].requires_grad_() for name in CASE.operands]
    assert torch.autograd.gradcheck(function, leaves)


def test_numbers_are_independent() -> None:
    """Each part is dropped as often as it should be, and pairs, columns and elements are too."""
    p, total, width = 0.3, 2000, 64
    ones = torch.ones(total, width)
    seed = torch.tensor([5])
    out = norm_mul_dropout(ones, ones, bias=ones[0], concat=True, dropout=p, seed=seed)
    dropped = (out == 0).double().view(total, 3, width)
    other = norm_mul_dropout(ones, ones, bias=ones[0], concat=True, dropout=p, seed=seed + 1)
    shares = {
        "all": (dropped.mean(), p, dropped.numel()),
        "another seed": ((dropped.flatten(1) * (other == 0)).mean(), p**2, dropped.numel()),
        "neighbours": ((dropped[:, :, 1:] * dropped[:, :, :-1]).mean(), p**2, dropped.numel()),
        "elements": ((dropped[1:] * dropped[:-1]).mean(), p**2, dropped.numel()),
        "all parts": (dropped.prod(1).mean(), p**3, total * width),
    }
    for one, two in ((0, 1), (0, 2), (1, 2)):
        both = (dropped[:, one] * dropped[:, two]).mean()
        shares[f"parts {one} and {two}"] = (both, p**2, total * width)
    for name, (share, expected, count) in shares.items():
        error = (share.item() - expected) / (expected * (1 - expected) / count) ** 0.5
        assert abs(error) < 5, f"{name}: {share} is not {expected}"
    # Means of columns and of elements scatter as those of independent numbers do.
    for means, count in ((dropped.mean(0), total), (dropped.mean((1, 2)), 3 * width)):
        scatter = means.std().item() / (p * (1 - p) / count) ** 0.5
        assert 0.9 < scatter < 1.1


def test_the_seed_comes_from_the_generator(device: torch.device) -> None:
    x = torch.randn(20, 8, device=device)

    def drawn() -> Tensor:
        return norm_mul_dropout(x, x, dropout=0.5)

    torch.manual_seed(3)
    first, second = drawn(), drawn()
    torch.manual_seed(3)
    assert torch.equal(drawn(), first)
    assert not torch.equal(first, second)


def test_without_dropout_no_seed_is_drawn(device: torch.device) -> None:
    x = torch.randn(4, 8, device=device)
    torch.manual_seed(3)
    expected = torch.rand(5, device=device)
    torch.manual_seed(3)
    plain = norm_mul_dropout(x, x)
    assert torch.equal(torch.rand(5, device=device), expected)
    given = norm_mul_dropout(x, x, seed=torch.tensor([1], device=device))
    assert torch.equal(plain, given)


def test_backward_drops_what_forward_dropped(device: torch.device) -> None:
    """With a seed that it drew itself, also after another draw."""
    u = torch.ones(50, 8, device=device, requires_grad=True)
    values = torch.randn(50, 8, device=device)
    out = norm_mul_dropout(values, u, dropout=0.4)
    norm_mul_dropout(values, u, dropout=0.4)
    (grad,) = torch.autograd.grad(out.sum(), u)
    torch.testing.assert_close(grad, out.detach())


def test_a_checkpoint_drops_the_same_again(device: torch.device) -> None:
    """It computes the forward pass a second time, with the generator set back."""
    x = torch.randn(50, 8, device=device, requires_grad=True)
    out = checkpoint.checkpoint(
        lambda x: norm_mul_dropout(x.sin(), x, silu=True, dropout=0.4), x, use_reentrant=False
    )
    norm_mul_dropout(x, x, dropout=0.4)
    (grad,) = torch.autograd.grad(out.square().sum(), x)
    kept = out.detach() != 0
    expected = norm_mul_dropout(x.sin(), x, silu=True) / 0.6
    (wanted,) = torch.autograd.grad(expected.square().mul(kept).sum(), x)
    torch.testing.assert_close(grad, wanted)


def test_compiled_with_dropout(device: torch.device) -> None:
    """One graph; the drawn seed is the one of the eager call, since the operator is the same."""
    torch._dynamo.reset()
    x, u = (torch.randn(9, 6, device=device, requires_grad=True) for _ in range(2))

    def function(x: Tensor, u: Tensor) -> Tensor:
        return norm_mul_dropout(2 * x, u, silu=True, concat=True, dropout=0.3)

    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    outs = []
    for call in (function, compiled):
        torch.manual_seed(8)
        out = call(x, u)
        outs.append((out, *torch.autograd.grad(out.square().sum(), (x, u))))
    for one, other in zip(*outs, strict=True):
        torch.testing.assert_close(one, other)
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # the backend's own
def test_inductor_with_dropout(device: torch.device) -> None:
    """Inductor draws seeds of its own: others each call, the same backward as forward."""
    torch._dynamo.reset()
    u = torch.ones(50, 8, device=device, requires_grad=True)
    values = torch.randn(50, 8, device=device)
    compiled = torch.compile(
        lambda v, u: norm_mul_dropout(v, u, dropout=0.4), fullgraph=True, dynamic=True
    )
    first, second = compiled(values, u), compiled(values, u)
    assert not torch.equal(first, second)
    assert 0.2 < (first == 0).float().mean().item() < 0.6
    (grad,) = torch.autograd.grad(first.sum(), u)
    torch.testing.assert_close(grad, first.detach())
    torch._dynamo.reset()


def test_opcheck_with_dropout(device: torch.device) -> None:
    given = CASE.make(Make([3, 0, 4], device, torch.float32, torch.int32, tail=1))
    flat = given["eps"], True, True, 0.3, given["seed"], given["offsets"]
    operands = [given[name] for name in CASE.operands]
    forward = torch.ops.jagged.norm_mul_dropout_forward.default
    torch.library.opcheck(forward, (*operands, *flat))
    out, mean, rstd = forward(*operands, *flat)
    backward = torch.ops.jagged.norm_mul_dropout_backward.default
    saved = *operands[:2], mean, rstd, *operands[2:], True
    torch.library.opcheck(backward, (torch.randn_like(out), *saved, *flat[1:]))


def test_a_captured_graph_draws_again(device: torch.device) -> None:
    if device.type != "cuda":
        pytest.skip("CUDA graphs need a GPU")
    x = torch.randn(64, 32, device=device)
    norm_mul_dropout(x, x, dropout=0.5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = norm_mul_dropout(x, x, dropout=0.5)
    results = []
    for _ in range(2):
        graph.replay()
        results.append(out.clone())
    assert not torch.equal(*results)
    assert 0.4 < (results[0] == 0).float().mean().item() < 0.6


def test_no_elements(device: torch.device) -> None:
    for shape in ((0, 4), (3, 0), (0, 2, 3), (3, 0, 3)):
        values, u = (torch.empty(shape, device=device, requires_grad=True) for _ in range(2))
        out = norm_mul_dropout(values, u, silu=True, concat=True, dropout=0.5)
        assert out.shape == (shape[0], 3 * torch.Size(shape[1:]).numel())
        for grad in torch.autograd.grad(out.sum(), (values, u)):
            assert grad.shape == shape


# Errors ---------------------------------------------------------------------------------------


def test_messages() -> None:
    x = torch.randn(5, 4)
    for call, error, message in [
        (
            lambda: norm_mul_dropout(x[0], x[0]),
            ValueError,
            r"2 or 3 dimensions, .* got shape \[4\]",
        ),
        (
            lambda: norm_mul_dropout(x.T.contiguous().T, x),
            ValueError,
            r"call values\.contiguous\(\)",
        ),
        (
            lambda: norm_mul_dropout(x.long(), x.long()),
            TypeError,
            r"values must be float32, .* got torch\.int64",
        ),
        (
            lambda: norm_mul_dropout(x, x, offsets=torch.tensor([0.0, 5.0])),
            TypeError,
            "offsets must be int32 or int64, got torch.float32",
        ),
        (lambda: norm_mul_dropout(x, x[:, :3]), ValueError, r"u must have shape that of values"),
        (lambda: norm_mul_dropout(x, x.half()), TypeError, "u must have the dtype of values"),
        (
            lambda: norm_mul_dropout(x, x.to("meta")),
            ValueError,
            "u must be on the device of values",
        ),
        (lambda: norm_mul_dropout(x, x.T.contiguous().T), ValueError, r"call u\.contiguous\(\)"),
        (
            lambda: norm_mul_dropout(x.view(5, 2, 2), x.view(5, 2, 2), torch.ones(4)),
            ValueError,
            r"weight must have shape \[H\] = \[2\], got \[4\]",
        ),
        (
            lambda: norm_mul_dropout(x, x, dropout=1.0),
            ValueError,
            r"dropout must be in \[0, 1\), got 1\.0",
        ),
        (
            lambda: norm_mul_dropout(x, x, dropout=torch.tensor(0.1)),  # type: ignore[arg-type]
            TypeError,
            "dropout must be a Python number, got Tensor",
        ),
        (
            lambda: norm_mul_dropout(x, x, dropout=0.1, seed=torch.tensor([1.0])),
            TypeError,
            "seed must be int64, got torch.float32",
        ),
        (
            lambda: norm_mul_dropout(x, x, dropout=0.1, seed=torch.tensor(1)),
            ValueError,
            r"seed must have shape \[1\]",
        ),
        (
            lambda: norm_mul_dropout(x, x, dropout=0.1, seed=3),  # type: ignore[arg-type]
            TypeError,
            r"seed must be a torch\.Tensor, got int",
        ),
    ]:
        with pytest.raises(error, match=message):
            call()


def test_the_oracle_is_the_definition() -> None:
    """One number by hand: the first steps of the hash, written out."""
    keep = dropout_keep(0, 1, 1, 1, 0.5)
    assert keep.tolist() == [[True]]  # everything of seed 0 at place 0 is 0, and 0 >= 0
    x = torch.randn(1, 1, dtype=torch.float64)
    out = norm_mul_dropout_oracle(x, x, bias=x[0], dropout=0.5, seed=torch.tensor([0]))
    assert_near(out, 2 * x * x)
