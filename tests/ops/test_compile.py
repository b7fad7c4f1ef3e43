"""The ops under torch.compile, fake tensors and dispatch modes, and without the host's help."""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from jagged import ops
from tests.ops.battery import (
    CASES,
    Arguments,
    Make,
    OpCase,
    assert_near,
    gradients,
    outgoing,
    widest,
    with_gradients,
)
from tests.ops.recorder import Recorder, record

# No size occurs twice in the first one: torch.compile would take them for one size.
BATCHES = [[0, 0, 12, 2, 8, 3, 1], [3, 0, 5, 2], [1, 6, 0]]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_opcheck(case: OpCase, device: torch.device) -> None:
    """Schema, aliasing, fake implementation, and a second run under AOTDispatcher."""
    calls = record(case, Make(BATCHES[0], device, torch.float32, torch.int32, tail=1))
    names = [op._schema.name for op, _ in calls]
    assert names == [f"jagged::{case.op}_forward", f"jagged::{case.op}_backward"]
    for op, args in calls:
        torch.library.opcheck(op, args)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_dispatcher_and_the_direct_way_agree(case: OpCase, device: torch.device) -> None:
    make = Make(BATCHES[0], device, widest(device), tail=1)
    arguments = case.make(make)
    grad = outgoing(case, case.call(arguments), make)
    direct, direct_grads = gradients(case, arguments, grad, case.operands)
    with Recorder() as recorder, torch.autograd.set_multithreading_enabled(False):
        out, grads = gradients(case, arguments, grad, case.operands)
    assert len(recorder.calls) == 2
    assert torch.equal(out, direct)
    for name in case.operands:
        assert torch.equal(grads[name], direct_grads[name])


@pytest.mark.parametrize("case", CASES, ids=str)
@torch._dynamo.config.patch(error_on_recompile=True)
def test_compile_with_changing_lengths(case: OpCase, device: torch.device) -> None:
    """Forward and backward in one graph, compiled once for all batches."""
    compiled = torch.compile(case.call, fullgraph=True, dynamic=True, backend="aot_eager")
    for lengths in BATCHES:
        make = Make(lengths, device, widest(device), tail=1)
        arguments = case.make(make)
        grad = outgoing(case, case.call(arguments), make)
        expected, expected_grads = gradients(case, arguments, grad, case.operands)
        leaves = with_gradients(arguments, case.operands)
        out = compiled(leaves)
        assert_near(out, expected)
        found = torch.autograd.grad(out, [leaves[name] for name in case.operands], grad)
        for name, gradient in zip(case.operands, found, strict=True):
            assert_near(gradient, expected_grads[name])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # the backend's own
def test_inductor(device: torch.device) -> None:
    """Once through the default backend, between ops that it fuses."""

    case = next(case for case in CASES if case.op == "softmax")

    def function(arguments: Arguments) -> Tensor:
        return (case.call({**arguments, "values": 2 * arguments["values"]}) + 1).square()

    compiled = torch.compile(function, fullgraph=True, dynamic=True)
    for lengths in BATCHES[:2]:
        arguments = case.make(Make(lengths, device, torch.float32))
        leaves = [with_gradients(arguments, case.operands) for _ in range(2)]
        outs = [function(leaves[0]), compiled(leaves[1])]
        for out in outs:
            out.sum().backward()
        torch.testing.assert_close(outs[1], outs[0])
        torch.testing.assert_close(leaves[1]["values"].grad, leaves[0]["values"].grad)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_eager_never_reads_the_device(case: OpCase) -> None:
    """Off the CPU the implementations run on meta tensors too, from which nothing can be read."""
    for op, args in record(case, Make(BATCHES[0], torch.device("cpu"), torch.float32, tail=1)):
        direction = op._schema.name.rpartition("_")[2]
        module = importlib.import_module(f"jagged.eager.{case.op}")
        implementation: Callable[..., Any] = getattr(module, direction)
        expected = pytree.tree_leaves(implementation(*args))
        empty = pytree.tree_map_only(Tensor, lambda x: x.to("meta"), args)
        results = pytree.tree_leaves(implementation(*empty))
        assert [r.shape for r in results] == [e.shape for e in expected]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_synchronisation(case: OpCase, device: torch.device) -> None:
    if device.type != "cuda":
        pytest.skip("only a GPU works behind the host's back")
    make = Make(BATCHES[0], device, torch.float32, tail=1)
    leaves = with_gradients(case.make(make), case.operands)
    grad = torch.ones_like(case.call(leaves))
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.autograd.grad(case.call(leaves), [leaves[name] for name in case.operands], grad)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_meta_tensors(case: OpCase) -> None:
    """Shapes and dtypes without any computation."""
    arguments = case.make(Make(BATCHES[0], torch.device("cpu"), torch.bfloat16))
    expected = case.call(arguments)
    out = case.call(pytree.tree_map_only(Tensor, lambda x: x.to("meta"), arguments))
    assert out.device.type == "meta"
    assert (out.shape, out.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_op_itself_has_no_derivative(case: OpCase, device: torch.device) -> None:
    """Only the public function has one; zeros without a word would be worse than an error."""
    (forward, args), (_, _) = record(case, Make(BATCHES[0], device, widest(device)))
    leaves = [
        x.requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() else x for x in args
    ]
    out = pytree.tree_leaves(forward(*leaves))[0]
    with pytest.raises(RuntimeError, match=rf"has no derivative: call jagged\.ops\.{case.op}"):
        out.sum().backward()


@pytest.mark.parametrize(
    "call",
    [
        lambda x, offsets: ops.jagged_bmm(x[:, 0], x[:, 0], offsets),
        lambda x, offsets: ops.hstu_attention(x, x, x, offsets, max_length=4, scale=0.5),
    ],
    ids=["jagged_bmm", "hstu_attention"],
)
def test_one_tensor_in_two_places(call: Callable[..., Tensor], device: torch.device) -> None:
    offsets = torch.tensor([0, 2, 5], device=device)
    found = []
    for run in (call, torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")):
        x = torch.linspace(-1, 1, 30, device=device).reshape(5, 2, 3).requires_grad_()
        (grad,) = torch.autograd.grad(run(x, offsets).square().sum(), x)
        found.append(grad)
    assert found[0].norm() > 0
    torch.testing.assert_close(found[1], found[0])
