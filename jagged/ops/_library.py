"""How an op is declared: its schema, its fake implementation, and where the real ones live.

    @operator("sum_forward(Tensor values, Tensor offsets) -> Tensor")
    def _forward(values, offsets):
        return values.new_empty(offsets.shape[0] - 1, *values.shape[1:])

declares `torch.ops.jagged.sum_forward`. The decorated function becomes the fake implementation
(shapes and dtypes for torch.compile and for meta tensors); on CPU tensors
`jagged.eager.sum.forward` runs, on CUDA tensors `jagged.kernels.sum.forward`, each imported at its
first call.

The decorator returns the function to call. Where nobody watches the dispatcher (plain tensors,
no compilation, no dispatch mode, no function transform, no derivative to record) it calls the
implementation itself, which saves the dispatcher's way into Python and back; else it calls the op.

No op here has a derivative of its own: the `autograd.Function` beside the public function has.
Differentiating an op itself, and with it a second derivative through the backward op, raises
`RuntimeError` instead of giving zeros.
"""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import unwrap_if_dead
from torch.autograd import forward_ad
from torch.nn import Parameter

_LIBRARY = torch.library.Library("jagged", "DEF")  # type: ignore[no-untyped-call]

Implementation = Callable[..., Any]

observers: list[Callable[[str, str, tuple[Any, ...]], None]] = []
"""Called with op, direction and arguments before an implementation runs: see `jagged.tuning`."""


def _implementation(package: str, module: str, direction: str) -> Implementation:
    """`jagged.<package>.<module>.<direction>`, imported now."""
    try:
        found = importlib.import_module(f"jagged.{package}.{module}")
    except ModuleNotFoundError as error:
        if error.name not in ("helion", "triton"):
            raise
        raise RuntimeError(
            f"jagged.ops.{module} got a CUDA tensor, and its kernel needs the package "
            f"{error.name}, which is not installed: pip install 'jagged-layers[gpu]', "
            "or move the tensors to the CPU"
        ) from error
    implementation: Implementation = getattr(found, direction)
    return implementation


def _check_gpu(op: str, device: torch.device) -> None:
    """The kernels compile for `device`: an older one lacks instructions that they use (tanh)."""
    capability = torch.cuda.get_device_capability(device)
    if torch.version.hip is None and capability >= (7, 5):
        return
    found = "an AMD GPU" if torch.version.hip else "one of {}.{}".format(*capability)
    raise RuntimeError(
        f"jagged.ops.{op} got a tensor on {device} ({torch.cuda.get_device_name(device)}), and its "
        f"kernel needs an NVIDIA GPU of compute capability 7.5 or newer, got {found}: "
        "move the tensors to such a GPU or to the CPU"
    )


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


def _refuse_tangents(op: str, args: tuple[Any, ...]) -> None:
    """Raise where forward mode would drop a tangent without a word."""
    for arg in args:
        if not isinstance(arg, Tensor):
            continue
        dual = forward_ad.unpack_dual(arg)  # type: ignore[no-untyped-call]
        if dual.tangent is not None:
            raise RuntimeError(
                f"jagged.ops.{op} has no forward-mode derivative: use reverse mode (.backward() "
                "or torch.autograd.grad)"
            )


def _runner(package: str, module: str, direction: str) -> Implementation:
    """Calls one implementation, which is imported at the first call."""
    found: Implementation | None = None

    def run(*args: Any) -> Any:
        nonlocal found
        if found is None:
            if args[0].device.type == "cuda":
                _check_gpu(module, args[0].device)
            found = _implementation(package, module, direction)
        for observe in observers:
            observe(module, direction, args)
        if torch._C._is_any_autocast_enabled():
            # The op computes in the dtypes of its arguments; callers cast them before if need be.
            with torch._C._DisableAutocast():
                return found(*args)
        return found(*args)

    return run


_PLAIN = frozenset((Tensor, Parameter, int, float, bool, str, type(None)))
# The key of batched gradients: torch.autograd.grad(is_grads_batched=True).
_VMAP_MODE = torch._C._dispatch_key_parse("VmapMode")


def _nobody_watches(args: tuple[Any, ...]) -> bool:
    """Whether the dispatcher would do no more than call an implementation."""
    return (
        _PLAIN.issuperset(map(type, args))
        and not torch._C._len_torch_dispatch_stack()
        and not torch._C._are_functorch_transforms_active()
    )


def operator(schema: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the op of `schema`, named `<module>_forward` or `<module>_backward`."""
    name = schema.partition("(")[0]
    module, _, direction = name.rpartition("_")
    is_backward = direction == "backward"
    on_cpu, on_cuda = _runner("eager", module, direction), _runner("kernels", module, direction)

    def declare(fake: Callable[..., Any]) -> Callable[..., Any]:
        tags = (torch.Tag.pt2_compliant_tag,)
        _LIBRARY.define(schema, tags=tags)  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"jagged::{name}", fake, lib=_LIBRARY)
        _LIBRARY.impl(name, on_cpu, "CPU")  # type: ignore[no-untyped-call]
        _LIBRARY.impl(name, on_cuda, "CUDA")  # type: ignore[no-untyped-call]
        torch.library.register_autograd(f"jagged::{name}", _refuse_derivative(name), lib=_LIBRARY)
        overload: Callable[..., Any] = getattr(torch.ops.jagged, name).default

        def call(*args: Any) -> Any:
            if torch.compiler.is_dynamo_compiling():
                return overload(*args)
            if forward_ad._current_level >= 0:
                _refuse_tangents(module, args)
            # Autograd calls a backward op with gradients enabled for `create_graph` alone. Before a
            # forward op the public function has asked `needs_gradient`.
            if is_backward and (
                torch.is_grad_enabled()
                or torch._C._dispatch_tls_is_dispatch_key_included(_VMAP_MODE)
            ):
                return overload(*args)
            if not _nobody_watches(args):
                return overload(*args)
            first: Tensor = args[0]
            if first.is_cuda:
                return on_cuda(*args)
            return on_cpu(*args) if first.is_cpu else overload(*args)

        return call

    return declare


def needs_gradient(*operands: Tensor | None) -> bool:
    """Whether autograd has to record an op on these operands."""
    if not torch.is_grad_enabled():
        return False
    for operand in operands:  # noqa: SIM110 - any() costs three times as much
        if operand is not None and operand.requires_grad:
            return True
    return False


def record(function: type[torch.autograd.Function], *args: Any) -> Tensor:
    """Call an `autograd.Function` of one result."""
    if torch.compiler.is_dynamo_compiling():
        args = tuple(_apart(args))
        out: Tensor = function.apply(*args)  # type: ignore[no-untyped-call]
        return out
    if torch._C._are_functorch_transforms_active():
        op = function.__module__.rpartition(".")[2]
        raise RuntimeError(
            f"jagged.ops.{op} has no derivative under a transform of torch.func (grad, vjp, vmap): "
            "use .backward() or torch.autograd.grad"
        )
    # All that `Function.apply` does then; its own way there takes as long as the recording.
    # Of a wrapper that a function transform left behind, the tensor inside.
    args = tuple([unwrap_if_dead(arg) if type(arg) is Tensor else arg for arg in args])
    recorded: Tensor = super(torch.autograd.Function, function).apply(*args)  # type: ignore[misc]
    return recorded


def _apart(args: tuple[Any, ...]) -> Iterator[Any]:
    """The arguments, a tensor that comes again as a view of itself: Dynamo takes none twice."""
    for place, arg in enumerate(args):
        again = isinstance(arg, Tensor) and any(arg is before for before in args[:place])
        yield arg.view_as(arg) if again else arg


def unit_last_stride(grad: Tensor) -> Tensor:
    """An incoming gradient as the backward ops take it: stride 1 in the last dimension.

    Autograd hands over expanded gradients (`y.sum().backward()`), which have stride 0 there.
    """
    if grad.ndim > 0 and grad.stride(-1) != 1 and grad.shape[-1] != 1:
        return grad.contiguous()
    return grad
