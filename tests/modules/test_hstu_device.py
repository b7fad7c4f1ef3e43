"""HSTU stacks on the device of the tests (`--device cuda`) against float64 on the CPU."""

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from jagged import JaggedTensor
from jagged.modules import HSTUConfig, HSTUStack
from jagged.testing import random_jagged
from tests.modules.catalogue import randomised

LENGTHS = [70, 0, 33, 1, 130, 8]
TARGETS = torch.tensor([3, 0, 2, 1, 5, 0])
TAIL = 5
SHAPE: dict[str, Any] = {
    "embedding_dim": 48,
    "num_heads": 2,
    "attention_dim": 32,
    "hidden_dim": 16,
    "max_length": 140,
    "num_layers": 2,
    "dropout": 0.0,
}
CONFIGS = {
    "research": HSTUConfig.research(**SHAPE),
    "research-odd": HSTUConfig.research(**{**SHAPE, "attention_dim": 25, "hidden_dim": 25}),
    "production": HSTUConfig.production(**SHAPE, window=(20, 0), contextual=2),
    "production-group-norm": HSTUConfig.production(**SHAPE, group_norm=True),
}
# Of the norm of a result or gradient, after two layers; rounding each value once costs eps / 2.
ALLOWED = {torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 8e-2}


def stack_of(config: HSTUConfig, dtype: torch.dtype) -> HSTUStack:
    """Random parameters that `dtype` holds exactly, of a size that keeps the scores moderate."""
    torch.manual_seed(4)
    stack = randomised(HSTUStack(config))
    assert isinstance(stack, HSTUStack)
    with torch.no_grad():
        for name, parameter in stack.named_parameters():
            if parameter.ndim == 2:
                parameter.mul_(2 * parameter.shape[1] ** -0.5)
            elif name.endswith("norm.weight"):
                parameter.add_(1)
    return stack.to(dtype)


def results(
    stack: HSTUStack, x: JaggedTensor, times: Tensor | None, device: torch.device | str
) -> list[Tensor]:
    """The values, and the gradients of x and of every parameter, in float64 on the CPU."""
    dtype = next(stack.parameters()).dtype
    values = x.values.to(device, dtype).requires_grad_()
    moved = JaggedTensor(values, x.offsets.to(device), x.max_length)
    out = stack(moved, TARGETS.to(device), None if times is None else times.to(device)).values
    generator = torch.Generator().manual_seed(6)
    factor = torch.randn(out.shape, generator=generator).to(torch.bfloat16)
    factor[sum(LENGTHS) :] = torch.nan
    grads = torch.autograd.grad(out, [values, *stack.parameters()], factor.to(device, dtype))
    return [t.detach().to("cpu", torch.float64) for t in (out, *grads)]


@pytest.mark.parametrize("dtype", list(ALLOWED), ids=str)
@pytest.mark.parametrize("name", list(CONFIGS))
def test_against_float64_on_the_cpu(name: str, dtype: torch.dtype, device: torch.device) -> None:
    config = CONFIGS[name]
    stack = stack_of(config, dtype)
    exact = copy.deepcopy(stack).double()
    x = random_jagged(LENGTHS, config.embedding_dim, dtype=dtype, tail=TAIL)
    times = None
    if config.time_buckets:
        times = torch.randint(0, 4000, (x.values.shape[0],)).cumsum(0)
    wanted = results(exact, x, times, "cpu")
    found = results(stack.to(device), x, times, device)
    names = ["result", "x", *dict(stack.named_parameters())]
    for label, got, want in zip(names, found, wanted, strict=True):
        assert got.isfinite().all(), label
        assert not got[sum(LENGTHS) :].any() or label not in ("result", "x"), label
        error = (got - want).norm() / want.norm()
        assert error <= ALLOWED[dtype], f"{label}: {error:.1e}"


@pytest.mark.parametrize("name", ["research", "production-group-norm"])
def test_training_with_dropout(name: str, device: torch.device) -> None:
    """A seed repeats the step, on this device, and another step drops other numbers."""
    config = dataclasses.replace(CONFIGS[name], dropout=0.3)
    stack = stack_of(config, torch.float32).to(device)
    x = random_jagged(LENGTHS, config.embedding_dim, tail=TAIL)
    times = torch.arange(x.values.shape[0]) if config.time_buckets else None

    def step(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        return results(stack, x, times, device)

    first, again, other = step(1), step(1), step(2)
    for one, two in zip(first, again, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)
    for one, two in zip(first[:2], other[:2], strict=True):
        assert not torch.equal(one, two)
