"""What takes part in a comparison: a provider's way to do an op.

A contender prepares what its user would have at hand (padded copies, nested tensors, row ids)
outside the timing and returns the call that is timed. It never waits for the device inside it.

The backward pass of every provider is timed alike: `torch.autograd.grad` of a result computed
before, with the graph retained and the gradients made contiguous. `jagged-eager` alone calls its
`backward` function directly, as the dispatcher would: it has no graph of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch._functorch import config as functorch_config

from bench.inputs import Inputs


class Form(NamedTuple):
    """How a contender holds a tensor: `into` its form from the op's, and `back`."""

    into: Callable[[Tensor], Tensor]
    back: Callable[[Tensor], Tensor]


def _same(x: Tensor) -> Tensor:
    return x


AS_IS = Form(_same, _same)


Gradients = Callable[[Tensor], Callable[[], Sequence[Tensor]]]
"""From an incoming gradient to the call of the backward pass."""


@dataclass(frozen=True)
class Call:
    """One prepared call; `leaves` are differentiated, in the order of the op's operands.

    `result` is the form of what `run` returns and `forms` that of each leaf and its gradient.
    `gradients`, where given, replaces autograd: from the incoming gradient to the backward call.
    """

    run: Callable[[], Tensor]
    leaves: tuple[Tensor, ...]
    forms: tuple[Form, ...]
    result: Form = AS_IS
    gradients: Gradients | None = None


Prepare = Callable[[Inputs], Call]


@dataclass(frozen=True)
class Contender:
    """A provider and how it does the op.

    Args:
        compiled: goes through torch.compile, which takes seconds to start.
        backward: whether it can be differentiated at all.
        cuda_only: has no implementation for the CPU.
        mathematics: "" for the op's own, else the name of what is computed in its place.
        fits: whether it applies to these inputs.
    """

    provider: str
    prepare: Prepare
    compiled: bool = False
    backward: bool = True
    cuda_only: bool = False
    mathematics: str = ""
    fits: Callable[[Inputs], bool] = lambda inputs: True


def call(inputs: Inputs, run: Callable[[], Tensor], gradients: Gradients | None = None) -> Call:
    """A call on the op's own operands, with a result in the op's own form."""
    return Call(run, inputs.leaves, (AS_IS,) * len(inputs.leaves), gradients=gradients)


def padded(inputs: Inputs, fill: float = 0.0) -> Form:
    """Jagged tensors held as [B, N, ...]. Converting is not timed, to the contender's favour."""
    return Form(lambda x: inputs.pad(x, fill), inputs.unpad)


def held(inputs: Inputs, form: Form, names: Sequence[str]) -> dict[str, Tensor]:
    """The operands as leaves: those of `names` in a form of the contender's own."""
    leaves = {}
    for name, x in inputs.tensors.items():
        if name in names:
            leaves[name] = form.into(x.detach()).requires_grad_(x.requires_grad)
        else:
            leaves[name] = x
    return leaves


def in_form(
    inputs: Inputs,
    form: Form,
    names: Sequence[str],
    run: Callable[[dict[str, Tensor]], Tensor],
    result: Form = AS_IS,
) -> Call:
    """A call on the operands of `names` held in `form`."""
    leaves = held(inputs, form, names)
    forms = tuple(form if name in names else AS_IS for name in leaves)
    return Call(lambda: run(leaves), tuple(leaves.values()), forms, result)


def compiled(inputs: Inputs, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`function` through torch.compile for these very shapes; as it is on the CPU."""
    if inputs.device.type != "cuda":
        return function
    torch._dynamo.reset()
    # The graph is run backward more than once.
    functorch_config.donated_buffer = False
    return torch.compile(function, dynamic=False)
