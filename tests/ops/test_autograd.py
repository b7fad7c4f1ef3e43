"""Derivatives: numerical checks, no silent second derivative, and saved offsets that stay valid."""

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from tests.ops.battery import (
    CASES,
    JAGGED_CASES,
    Make,
    OpCase,
    outgoing,
    subsets,
    widest,
    with_gradients,
)
from tests.ops.recorder import record

LENGTHS = [3, 0, 5, 2]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradcheck(case: OpCase) -> None:
    """Analytic against numerical gradients in float64, which only the CPU has."""
    arguments = case.make(Make(LENGTHS, torch.device("cpu"), tail=0))

    def function(*operands: Tensor) -> Tensor:
        return case.call({**arguments, **dict(zip(case.operands, operands, strict=True))})

    leaves = [arguments[name].requires_grad_() for name in case.operands]
    assert torch.autograd.gradcheck(function, leaves)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_second_derivative_is_an_error(case: OpCase, device: torch.device) -> None:
    """fbgemm gives zeros there, with only a warning."""
    make = Make(LENGTHS, device, widest(device))
    leaves = with_gradients(case.make(make), case.operands)
    out = case.call(leaves)
    factor = make.dense(*out.shape).requires_grad_()
    first = torch.autograd.grad(
        (out * factor).sum(), [leaves[name] for name in case.operands], create_graph=True
    )
    total = torch.stack([grad.sum() for grad in first if grad.requires_grad]).sum()
    if case.op == "padded_add":
        # The gradient of its dense operand is the incoming one, whose derivative is exact.
        total = first[0].sum()
    with pytest.raises(RuntimeError, match=rf"jagged\.ops\.{case.op} has no second derivative"):
        torch.autograd.grad(total, factor)


@pytest.mark.parametrize("case", JAGGED_CASES, ids=str)
def test_a_second_derivative_through_the_operand(case: OpCase, device: torch.device) -> None:
    """`(op(x) * x).sum()`, where the incoming gradient depends on the operand itself."""
    make = Make(LENGTHS, device, widest(device))
    leaves = with_gradients(case.make(make), case.operands)
    x = leaves[case.operands[0]]
    loss = case.call(leaves).sum() * x.sum() + (case.call(leaves).square()).sum()
    (first,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="has no second derivative"):
        torch.autograd.grad(first.sum(), x)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_create_graph_gives_the_same_first_derivative(case: OpCase, device: torch.device) -> None:
    make = Make(LENGTHS, device, widest(device))
    leaves = with_gradients(case.make(make), case.operands)
    operands = [leaves[name] for name in case.operands]
    once = torch.autograd.grad(case.call(leaves).square().sum(), operands)
    graph = torch.autograd.grad(case.call(leaves).square().sum(), operands, create_graph=True)
    for one, other in zip(once, graph, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("case", JAGGED_CASES, ids=str)
def test_offsets_changed_between_forward_and_backward(case: OpCase, device: torch.device) -> None:
    """Writing past a buffer is what a peer does there."""
    leaves = with_gradients(case.make(Make(LENGTHS, device, widest(device))), case.operands)
    out = case.call(leaves)
    leaves["offsets"][1:] += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # make_dual's own
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_mode_is_an_error(case: OpCase, device: torch.device) -> None:
    """A kernel would drop the tangent, which then counts as 0."""
    arguments = case.make(Make(LENGTHS, device, widest(device)))
    with forward_ad.dual_level():
        assert case.call(arguments).shape[0] >= 0  # without tangents all is well
        name = case.operands[-1]
        dual = forward_ad.make_dual(arguments[name], torch.ones_like(arguments[name]))
        with pytest.raises(RuntimeError, match=rf"jagged\.ops\.{case.op} has no forward-mode"):
            case.call({**arguments, name: dual})


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_backward_op_is_asked_for_what_is_needed(case: OpCase, device: torch.device) -> None:
    for names in subsets(case.operands):
        calls = record(case, Make(LENGTHS, device, widest(device)), names)
        if case.op == "padded_add" and names == ("dense",):
            assert len(calls) == 1  # its gradient is the incoming one
            continue
        (_, (op, args)) = calls
        asked = {
            argument.name.partition("_")[2]: value
            for argument, value in zip(op._schema.arguments, args, strict=True)
            if argument.name.startswith(("need_", "has_"))
        }
        assert asked == {name: name in names for name in asked}


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # a loop over the op
@pytest.mark.parametrize("case", CASES, ids=str)
def test_several_gradients_at_once(case: OpCase, device: torch.device) -> None:
    """As of `torch.autograd.functional.jacobian(vectorize=True)`."""
    make = Make(LENGTHS, device, widest(device), tail=1)
    leaves = with_gradients(case.make(make), case.operands)
    operands = [leaves[name] for name in case.operands]
    out = case.call(leaves)
    grads = torch.stack([outgoing(case, out, make), 2 * outgoing(case, out, make)])
    batched = torch.autograd.grad(out, operands, grads, retain_graph=True, is_grads_batched=True)
    single = [torch.autograd.grad(out, operands, grad, retain_graph=True) for grad in grads]
    for many, *each in zip(batched, *single, strict=True):
        torch.testing.assert_close(many, torch.stack(each), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_accumulate(case: OpCase, device: torch.device) -> None:
    """Two uses of one operand, and `.backward()` twice into `.grad`."""
    leaves = with_gradients(case.make(Make(LENGTHS, device, widest(device))), case.operands)
    case.call(leaves).sum().backward()
    once = {name: leaves[name].grad.clone() for name in case.operands}  # type: ignore[union-attr]
    (case.call(leaves) + case.call(leaves)).sum().backward()
    for name in case.operands:
        torch.testing.assert_close(leaves[name].grad, 3 * once[name])
