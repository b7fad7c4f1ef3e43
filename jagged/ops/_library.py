"""How an op is declared: its schema, its fake implementation, and where the real ones live.

    @operator("sum_forward(Tensor values, Tensor offsets) -> Tensor", cuda="kernels")
    def _forward(values, offsets):
        return values.new_empty(offsets.shape[0] - 1, *values.shape[1:])

declares `torch.ops.jagged.sum_forward`. The decorated function becomes the fake implementation
(shapes and dtypes for torch.compile and for meta tensors); on CPU tensors
`jagged.eager.sum.forward` runs, on CUDA tensors the function of the same name in
`jagged.<cuda>.sum`, imported at its first call. The decorator returns the overload to call.

No op here has a derivative of its own: the `autograd.Function` beside the public function has.
Differentiating an op itself, and with it a second derivative through the backward op, raises
`RuntimeError` instead of giving zeros.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("jagged", "DEF")

Implementation = Callable[..., Any]


@functools.cache
def _implementation(package: str, module: str, direction: str) -> Implementation:
    """`jagged.<package>.<module>.<direction>`, imported at the first use."""
    try:
        found = importlib.import_module(f"jagged.{package}.{module}")
    except ModuleNotFoundError as error:
        if error.name not in ("helion", "triton"):
            raise
        raise RuntimeError(
            f"jagged.ops.{module} got a CUDA tensor, and its kernel needs the package {error.name}, "
            "which is not installed: pip install 'jagged-layers[gpu]', or move the tensors to the CPU"
        ) from error
    implementation: Implementation = getattr(found, direction)
    return implementation


def _refuse_derivative(name: str) -> Callable[..., None]:
    op = name.rpartition("_")[0]
    if name.endswith("_backward"):
        message = (
            f"jagged.ops.{op} has no second derivative: differentiate it once "
            "(drop create_graph=True, or detach what the second pass goes through)"
        )
    else:
        message = f"torch.ops.jagged.{name} has no derivative: call jagged.ops.{op} instead"

    def refuse(_ctx: Any, *_grads: Any) -> None:
        raise RuntimeError(message)

    return refuse


def operator(
    schema: str, *, cuda: Literal["eager", "kernels"]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the op of `schema`, named `<module>_forward` or `<module>_backward`."""
    name = schema.partition("(")[0]
    module, _, direction = name.rpartition("_")

    def declare(fake: Callable[..., Any]) -> Callable[..., Any]:
        _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        torch.library.register_fake(f"jagged::{name}", fake, lib=_LIBRARY)
        for key, package in (("CPU", "eager"), ("CUDA", cuda)):

            def run(*args: Any, package: str = package) -> Any:
                return _implementation(package, module, direction)(*args)

            _LIBRARY.impl(name, run, key)
        torch.library.register_autograd(f"jagged::{name}", _refuse_derivative(name), lib=_LIBRARY)
        overload: Callable[..., Any] = getattr(torch.ops.jagged, name).default
        return overload

    return declare


def unit_last_stride(grad: Tensor) -> Tensor:
    """An incoming gradient as the backward ops take it: stride 1 in the last dimension.

    Autograd hands over expanded gradients (`y.sum().backward()`), which have stride 0 there.
    """
    if grad.ndim > 0 and grad.stride(-1) != 1 and grad.shape[-1] != 1:
        return grad.contiguous()
    return grad
