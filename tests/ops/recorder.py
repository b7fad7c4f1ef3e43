"""Sees which ops of this library are called."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tests.ops.battery import Make, OpCase, with_gradients


class Recorder(TorchDispatchMode):
    """Notes the ops of this library that are called, with their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[OpOverload, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "jagged":
            self.calls.append((func, pytree.tree_map(_detached, args)))
        return func(*args, **(kwargs or {}))


def _detached(x: object) -> object:
    return x.detach().clone() if isinstance(x, Tensor) else x


def record(
    case: OpCase, make: Make, names: Sequence[str] | None = None
) -> list[tuple[OpOverload, tuple[Any, ...]]]:
    """The forward and the backward op that a case calls, with their arguments.

    `names` are the operands to differentiate for, all where it is None.
    """
    names = case.operands if names is None else names
    leaves = with_gradients(case.make(make), names)
    with Recorder() as recorder, torch.autograd.set_multithreading_enabled(False):
        out = case.call(leaves)
        torch.autograd.grad(out, [leaves[name] for name in names], torch.ones_like(out))
    return recorder.calls
