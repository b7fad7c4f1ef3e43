"""Launch of a Helion kernel at the price of a dictionary lookup.

`helion.kernel(...)(...)` looks at its arguments for a third of a millisecond when the total length
changes, and keeps an entry for every length it has seen. `@launchable` keeps a table of its own:
what specialises the generated code is the key, the compiled function is the value, and neither
depends on the number of elements. Below it, `_direct` does the same for Triton's launch.

    @launchable()
    def sum_rows(values, offsets, out):         # tensors, outputs included; sizes and device loops
        ...

    sum_rows(config, values, offsets, out)      # config: jagged.tuning.configs.Config

Arguments are tensors, None, floats, ints, bools; one annotated `hl.constexpr` is compiled in. A
kernel returns nothing. The first call of a key compiles (seconds) and must not be under CUDA graph
capture; later calls are safe there, and safe from several threads.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from operator import mul
from typing import Any, get_args

import helion
import helion.language as hl
import torch
from helion.exc import InvalidConfig
from torch import Tensor
from triton.runtime import JITFunction, OutOfResources

from jagged.tuning._direct import INT32_LIMIT, direct
from jagged.tuning._host import contiguous_strides
from jagged.tuning.configs import Config

MAX_ENTRIES = (
    256  # of one kernel: beyond it the oldest entry is dropped and would be compiled again
)
SURELY_NARROW = INT32_LIMIT // 2  # a contiguous tensor of fewer elements has 32-bit offsets


def launchable(
    *, dynamic: Mapping[str, tuple[int, ...]] | None = None, dot: bool = False
) -> Callable[[Callable[..., None]], "Launchable"]:
    """Make a Helion kernel function launchable.

    Args:
        dynamic: for each argument name, the dimensions whose size does not specialise the code.
            (0,) for an argument that is not named: T and B never specialise, widths do.
        dot: the kernel multiplies matrices, of the dtype of its first tensor, so the precision of
            float32 products is part of the key: IEEE unless `torch.backends.cuda.matmul` allows
            TF32.
    """

    def decorate(function: Callable[..., None]) -> Launchable:
        return Launchable(function, dynamic or {}, dot)

    return decorate


class Launchable:
    """A Helion kernel function and its compiled forms."""

    def __init__(
        self, function: Callable[..., None], dynamic: Mapping[str, tuple[int, ...]], dot: bool
    ) -> None:
        code = function.__code__
        names = code.co_varnames[: code.co_argcount]
        unknown = set(dynamic) - set(names)
        if unknown:
            raise ValueError(f"{function.__name__} has no arguments {sorted(unknown)}")
        self.function = function
        self.dot = dot
        self._names = names
        self.dynamic = tuple(dynamic.get(name, (0,)) for name in names)
        self._key = _key_function(function, dict(zip(names, self.dynamic, strict=True)), dot)
        self._compiled: dict[tuple[object, ...], Callable[..., None]] = {}
        self._lock = threading.Lock()

    def __call__(self, config: Config, *args: Any) -> None:
        """Launch with `config` on the device and current stream of the first tensor."""
        key = self._key(config, *args)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compile(key, config, args)
        try:
            compiled(*args)
        except OutOfResources as error:
            self._launch_with_fewer_stages(key, config, args, error)

    def bind(self, config: Config, args: Sequence[Any], wide: bool = False) -> Any:
        """Helion's bound kernel for these arguments: `wide` for 64-bit addresses."""
        options: dict[str, Any] = {"index_dtype": torch.int64 if wide else torch.int32}
        if self.dot:
            options["dot_precision"] = "tf32" if _precision() == "tf32" else "ieee"
        kernel = helion.kernel(
            self.function,
            static_shapes=False,
            config=helion.Config(**config.settings),
            **options,
        )
        return kernel.bind(
            tuple(
                _stand_in(arg, dims) if isinstance(arg, Tensor) else arg
                for arg, dims in zip(args, self.dynamic, strict=True)
            )
        )

    def tensor_names(self, args: tuple[Any, ...]) -> set[str]:
        return {
            name for name, arg in zip(self._names, args, strict=True) if isinstance(arg, Tensor)
        }

    def known_strides(self, args: tuple[Any, ...]) -> dict[tuple[str, int], int]:
        """Strides that all arguments of the same key have, by name and dimension."""
        shapes = {
            name: tuple(arg.shape)
            for name, arg in zip(self._names, args, strict=True)
            if isinstance(arg, Tensor) and _is_dense(arg)
        }
        leading = dict(zip(self._names, map(len, self.dynamic), strict=True))
        return contiguous_strides(shapes, leading)

    def _launch_with_fewer_stages(
        self,
        key: tuple[object, ...],
        config: Config,
        args: tuple[Any, ...],
        error: OutOfResources,
    ) -> None:
        """Launch on a GPU with less shared memory than the one that `config` was measured on.

        A stage of a pipeline is a block of each operand there. The first number of stages that fits
        is kept for all later calls.
        """
        stages = config.settings.get("num_stages", 1)
        for fewer in range(stages - 1, 0, -1) if error.name == "shared memory" else ():
            settings = config.settings | {"num_stages": fewer}
            smaller = Config(settings, config.form, config.constants, config.maxnreg)
            compiled = self._compile(key, smaller, args, replacing=True)
            try:
                return compiled(*args)
            except OutOfResources:
                continue
        device = next(arg.device for arg in args if isinstance(arg, Tensor))
        raise ValueError(
            f"the kernel {self.function.__name__} with {config} does not fit {device}: "
            f"{error.name} {error.required}, of which it has {error.limit}; find a config for this "
            "GPU with python -m jagged.tuning tune, or use narrower features"
        ) from error

    def _compile(
        self,
        key: tuple[object, ...],
        config: Config,
        args: tuple[Any, ...],
        *,
        replacing: bool = False,
    ) -> Callable[..., None]:
        with self._lock:
            compiled = None if replacing else self._compiled.get(key)
            if compiled is None:
                tensors = [arg for arg in args if isinstance(arg, Tensor)]
                wide = any(not _is_dense(one) and _layout(one) == "wide" for one in tensors)
                device = tensors[0].device
                try:
                    compiled = self.bind(config, args, wide).compile_config()
                except InvalidConfig as error:
                    reason = str(error).strip().split("\n", 1)[0]
                    raise ValueError(
                        f"the kernel {self.function.__name__} does not take {config}: {reason}; "
                        "python -m jagged.tuning check [--tables FOLDER] says which table has it"
                    ) from error
                if device.type == "cuda":
                    keep_sizes_general(compiled, self.tensor_names(args))
                    strides = self.known_strides(args)
                    compiled = direct(compiled, device.index, strides, config.launch_options)
                if len(self._compiled) >= MAX_ENTRIES:
                    self._compiled.pop(next(iter(self._compiled)))
                self._compiled[key] = compiled
            return compiled


def _key_function(
    function: Callable[..., None], dynamic: Mapping[str, tuple[int, ...]], dot: bool
) -> Callable[..., tuple[object, ...]]:
    """Makes `key(config, *args)`: everything that the code generated for `function` depends on.

    It is written out for the arguments, as `lambda config, values, steps: (config,
    values.get_device(), values.dtype, values.is_contiguous() and ..., type(steps))`: a loop over
    them would cost twice as much, and this is a large part of what a call of an op costs.
    """
    annotations = function.__annotations__
    always = next((name for name in dynamic if annotations[name] is Tensor), None)
    if always is None:
        raise ValueError(f"{function.__name__} needs an argument that is always a tensor")
    facts = ["config", f"{always}.get_device()"]
    if dot:
        facts.append(f"{always}.dtype is float32 and precision()")
    for name, dims in dynamic.items():
        annotation = annotations[name]
        if annotation is hl.constexpr:
            facts.append(name)
        elif annotation is Tensor or Tensor in get_args(annotation):
            if dims != tuple(range(len(dims))):
                raise ValueError(f"dynamic dimensions of {name} must be the first, got {dims}")
            fact = (
                f"{name}.dtype, {_trailing(name, len(dims))}, "
                f"{name}.is_contiguous() and {name}.numel() < {SURELY_NARROW} or layout({name})"
            )
            facts.append(
                fact if annotation is Tensor else f"{name} if {name} is None else ({fact})"
            )
        else:
            facts.append(f"type({name})")
    made: Callable[..., tuple[object, ...]] = eval(
        f"lambda config, {', '.join(dynamic)}: ({', '.join(facts)})",
        {"layout": _layout, "float32": torch.float32, "precision": _precision},
    )
    return made


def _trailing(name: str, leading: int) -> str:
    """Source of the sizes of a tensor past its `leading` dimensions; True where there are none.

    The slice of a shape costs more than all else that a key has of a tensor, and most have one
    dimension more or none.
    """
    one_more = f"({name}.shape[{leading}],) if (_ndim := {name}.ndim) == {leading + 1}"
    return f"{one_more} else _ndim == {leading} or {name}.shape[{leading}:]"


def _precision() -> object:
    """Of float32 products, as PyTorch's own kernels have it."""
    return torch.backends.cuda.matmul.fp32_precision


def _is_dense(tensor: Tensor) -> bool:
    """Whether its strides follow from its shape, and surely have 32 bits."""
    return tensor.is_contiguous() and tensor.numel() < SURELY_NARROW


def _layout(tensor: Tensor) -> str:
    """What a key says of the strides of a tensor that is not dense: that offsets need 64 bits
    ("wide") or not ("strided").

    They do by an upper bound of the largest, and by the number of elements, since Helion counts
    those of an expanded tensor as well.
    """
    narrow = tensor.numel() < INT32_LIMIT and (
        tensor.untyped_storage().nbytes() < INT32_LIMIT  # quick for most: offsets stay in it
        or sum(map(mul, tensor.shape, tensor.stride())) < INT32_LIMIT
    )
    return "strided" if narrow else "wide"


def _stand_in(tensor: Tensor, dynamic: tuple[int, ...]) -> Tensor:
    """What Helion sees of a tensor when it generates code: never a dynamic dimension of size 1.

    For a dimension of size 1 it drops the index together with the mask of the tile, so that the
    lanes beyond the end store to element 0. A larger size keeps both, and serves every size. A
    new object in any case: Helion generates other code where one tensor is passed twice.
    """
    shape = [
        max(size, 2) if dim in dynamic and isinstance(size, int) else size
        for dim, size in enumerate(tensor.shape)
    ]
    return tensor.detach() if list(tensor.shape) == shape else tensor.new_empty(shape)


def keep_sizes_general(function: Callable[..., None], tensors: set[str]) -> None:
    """Stop Triton from compiling a kernel anew for each class of a size: 1, or a multiple of 16.

    Sizes change from batch to batch, and nothing is gained: only addresses and strides decide
    whether a load can be wide. To be called before the first launch.
    """
    for value in function.__globals__.values():
        if isinstance(value, JITFunction):
            for parameter in value.params:
                if parameter.is_constexpr or parameter.name in tensors:
                    continue
                if "_stride_" not in parameter.name:
                    parameter.do_not_specialize = True
