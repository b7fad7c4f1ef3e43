"""Launch of a Helion kernel at the price of a dictionary lookup.

`helion.kernel(...)(...)` looks at its arguments for a third of a millisecond when the total length
changes, and keeps an entry for every length it has seen. `@launchable` keeps a table of its own:
what specialises the generated code is the key, the compiled function is the value, and neither
depends on the number of elements. Below it, `_Direct` does the same for Triton's launch.

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
from typing import Any

import helion
import helion.language as hl
import torch
from torch import Tensor
from triton import knobs
from triton.runtime import JITFunction

from jagged.tuning.configs import Config

MAX_ENTRIES = (
    256  # of one kernel: beyond it the oldest entry is dropped and would be compiled again
)
INT32_LIMIT = 2**31


def launchable(
    *, dynamic: Mapping[str, tuple[int, ...]] | None = None, dot: bool = False
) -> Callable[[Callable[..., None]], "Launchable"]:
    """Make a Helion kernel function launchable.

    Args:
        dynamic: for each argument name, the dimensions whose size does not specialise the code.
            (0,) for an argument that is not named: T and B never specialise, widths do.
        dot: the kernel multiplies matrices, so the precision of float32 products is part of the
            key: IEEE unless `torch.backends.cuda.matmul` allows TF32.
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
        # Arguments with only dimension 0 dynamic, the usual case, have None here: a faster path.
        self._dynamic = tuple(None if dims == (0,) else dims for dims in self.dynamic)
        self._constexpr = tuple(
            function.__annotations__.get(name) is hl.constexpr for name in names
        )
        self._compiled: dict[tuple[object, ...], Callable[..., None]] = {}
        self._lock = threading.Lock()

    def __call__(self, config: Config, *args: Any) -> None:
        """Launch with `config` on the device and current stream of the first tensor."""
        key, wide, device = self._key(config, args)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compile(key, config, wide, device, args)
        if device.type != "cuda" or device.index == torch.cuda.current_device():
            compiled(*args)
        else:
            with torch.cuda.device(device):
                compiled(*args)

    def bind(self, config: Config, args: Sequence[Any], wide: bool = False) -> Any:
        """Helion's bound kernel for these arguments: `wide` for 64-bit addresses."""
        options: dict[str, Any] = {"index_dtype": torch.int64 if wide else torch.int32}
        if self.dot:
            tf32 = torch.backends.cuda.matmul.fp32_precision == "tf32"
            options["dot_precision"] = "tf32" if tf32 else "ieee"
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

    def _key(
        self, config: Config, args: tuple[Any, ...]
    ) -> tuple[tuple[object, ...], bool, torch.device]:
        """Everything that the generated code depends on; whether addresses need 64 bits; device."""
        facts: list[object] = [config]
        add = facts.append
        wide = False
        device = None
        for arg, dynamic, constexpr in zip(args, self._dynamic, self._constexpr, strict=True):
            if isinstance(arg, Tensor):
                shape, stride = arg.shape, arg.stride()
                # An upper bound of the largest offset; Helion counts expanded elements as well.
                if sum(map(mul, shape, stride)) >= INT32_LIMIT or (
                    0 in stride and arg.numel() >= INT32_LIMIT
                ):
                    wide = True
                add(arg.dtype)
                # Size 1 lets Helion drop a dimension's index, so it is a fact of its own.
                if dynamic is None:
                    add(shape[1:])
                    add(shape[0] == 1)
                else:
                    add(
                        tuple((size == 1 if i in dynamic else size) for i, size in enumerate(shape))
                    )
                if device is None:
                    device = arg.device
            elif constexpr:
                add(arg)
            else:
                add(type(arg))
        if device is None:
            raise TypeError(f"{self.function.__name__} was called without a tensor")
        add(device)
        add(wide)
        if self.dot:
            add(torch.backends.cuda.matmul.fp32_precision)
        return tuple(facts), wide, device

    def _compile(
        self,
        key: tuple[object, ...],
        config: Config,
        wide: bool,
        device: torch.device,
        args: tuple[Any, ...],
    ) -> Callable[..., None]:
        with self._lock:
            compiled = self._compiled.get(key)
            if compiled is None:
                function = self.bind(config, args, wide).compile_config()
                compiled = function
                if device.type == "cuda":
                    keep_sizes_general(function, self.tensor_names(args))
                    compiled = _Direct(function, device, config.launch_options)
                if len(self._compiled) >= MAX_ENTRIES:
                    self._compiled.pop(next(iter(self._compiled)))
                self._compiled[key] = compiled
            return compiled


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


class _Direct:
    """A compiled Helion function that hands its launches to Triton's compiled kernel.

    `JITFunction.run` builds dictionaries and prints the options into a string at each call, more
    than half of the cost of a launch. What it looks up depends only on the alignment of the
    addresses and on the class of each integer (1, a multiple of 16, beyond 32 bits).
    """

    def __init__(
        self, function: Callable[..., None], device: torch.device, options: Mapping[str, int]
    ) -> None:
        self._function = function
        self._options = options
        self._device = device.index
        self._kernels: dict[tuple[object, ...], Any] = {}

    def __call__(self, *args: Any) -> None:
        self._function(*args, _launcher=self._launch)

    def _launch(self, jit: Any, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
        plain: list[Any] = []
        facts: list[object] = [id(jit)]
        for arg in args:
            if isinstance(arg, Tensor):
                address = arg.data_ptr()
                plain.append(address)  # spares Triton a driver query for each pointer
                facts.append(address & 15 == 0)
            else:
                plain.append(arg)
                if type(arg) is int:
                    narrow = -INT32_LIMIT <= arg < INT32_LIMIT
                    facts.append(1 if arg == 1 else (arg & 15 == 0, narrow))
                elif type(arg) is not float:  # a float never specialises, None and a bool do
                    facts.append(arg)
        key = tuple(facts)
        kernel = self._kernels.get(key)
        if kernel is None or knobs.runtime.launch_enter_hook.calls:
            # Compiles where need be, and calls a profiler's hooks.
            options |= self._options
            self._kernels[key] = jit.run(*args, grid=grid, warmup=False, **options)
            return
        x, y, z = (*grid, 1, 1)[:3]
        stream = torch._C._cuda_getCurrentRawStream(self._device)
        kernel.run(
            x, y, z, stream, kernel.function, kernel.packed_metadata, None, None, None, *plain
        )
