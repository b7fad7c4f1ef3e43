"""Launches of Triton's compiled kernels, without `JITFunction.run`.

That builds dictionaries and prints the options into a string at each call, most of the cost of a
launch. What it looks up depends on little of the arguments that change: whether addresses and
strides are multiples of 16, whether numbers have 32 bits. So a function is written for each launch
of a host function, which goes like this one, for two tensors and two sizes on the first GPU:

    def launch(x, _0, _1, _4, _5):
        if current_device() != 0:
            with device(0):
                return launch(x, _0, _1, _4, _5)
        a0, a1 = _0.data_ptr(), _1.data_ptr()
        key = ((a0 | a1) & 15 == 0 or aligned(a0, a1), 0 <= _4 | _5 < 2147483648 or narrow(_4, _5))
        kernel = kernels.get(key)
        if kernel is None or runtime.launch_enter_hook.calls:
            kernels[key] = look_up((x, 1, 1), _0, _1, 64, 1, _4, _5)
        else:
            run, between = kernel
            run(x, 1, 1, stream(0), *between, a0, a1, 64, 1, _4, _5)
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
from torch import Tensor
from triton import knobs
from triton.backends.nvidia.driver import CudaLauncher

from jagged.tuning._host import Launch, Site, Strides, fold

INT32_LIMIT = 2**31


def direct(
    function: Callable[..., None], device: int, strides: Strides, options: Mapping[str, int]
) -> Callable[..., None]:
    """Helion's host function as one that launches on the current stream of a device.

    Args:
        function: what Helion made; the types of its later arguments are those of the first.
        device: index of the device of the tensors.
        strides: those that never change, by argument and dimension.
        options: for Triton, beside those that Helion passes on.
    """

    def first(site: Site, replace: Callable[[Launch], None]) -> Launch:
        def launch(*given: Any) -> None:
            written = write(site, given[site.dimensions :], device, options)
            replace(written)
            written(*given)

        return launch

    return fold(function, strides, first)


def write(site: Site, changing: tuple[Any, ...], device: int, options: Mapping[str, int]) -> Launch:
    """The function of a launch, for arguments of the types of those that are `changing`."""
    values = iter(changing)
    kinds = [
        "fixed" if source else _kind(parameter, next(values))
        for source, parameter in zip(site.args, site.kernel.params, strict=True)
    ]

    def of(kind: str, form: str = "_{}") -> list[str]:
        return [form.format(place) for place, one in enumerate(kinds) if one == kind]

    grid = ["x", "y", "z"][: site.dimensions]
    whole_grid = ", ".join([*grid, "1", "1"][:3])
    given = ", ".join([*grid, *(f"_{n}" for n, kind in enumerate(kinds) if kind != "fixed")])
    every = [source or f"_{place}" for place, source in enumerate(site.args)]
    to_triton = [
        f"a{place}" if kind == "tensor" else source
        for place, (kind, source) in enumerate(zip(kinds, every, strict=True))
    ]
    key = []
    if addresses := of("tensor", "a{}"):
        key.append(f"({' | '.join(addresses)}) & 15 == 0 or aligned({', '.join(addresses)})")
    if sizes := of("size"):
        key.append(f"0 <= {' | '.join(sizes)} < {INT32_LIMIT} or narrow({', '.join(sizes)})")
    if steps := of("stride"):
        key.append(f"classes({', '.join(steps)})")
    key += of("value")
    lines = [
        f"def launch({given}):",
        f"    if current_device() != {device}:",
        f"        with device({device}):",
        f"            return launch({given})",
        *(f"    a{place} = _{place}.data_ptr()" for place in map(int, of("tensor", "{}"))),
        f"    key = ({''.join(one + ', ' for one in key)})",
        "    kernel = kernels.get(key)",
        "    if kernel is None or runtime.launch_enter_hook.calls:",
        f"        kernels[key] = look_up(({whole_grid}), {', '.join(every)})",
        "    else:",
        "        run, between = kernel",
        f"        run({whole_grid}, stream({device}), *between, {', '.join(to_triton)})",
    ]
    jit, options = site.kernel, {**site.options, **options}

    def look_up(grid: tuple[int, int, int], *args: Any) -> tuple[Launch, tuple[Any, ...]]:
        """Compiles where need be, and calls a profiler's hooks."""
        return _launcher(jit.run(*args, grid=grid, warmup=False, **options))

    names: dict[str, Any] = {
        "current_device": torch._C._cuda_getDevice,
        "device": torch.cuda.device,
        "stream": torch._C._cuda_getCurrentRawStream,
        "runtime": knobs.runtime,
        "kernels": {},
        "look_up": look_up,
        "aligned": _aligned,
        "narrow": _narrow,
        "classes": _classes,
    }
    exec("\n".join(lines), names)
    launch: Launch = names["launch"]
    return launch


def _launcher(kernel: Any) -> tuple[Launch, tuple[Any, ...]]:
    """What launches a compiled kernel, and what it gets between the stream and the arguments."""
    run, known = kernel.run, triton.__version__.startswith("3.6.")
    if known and isinstance(run, CudaLauncher) and not _takes_scratch(run):
        # What `run` calls once it has allocated nothing.
        flags = run.launch_cooperative_grid, run.launch_pdl
        between = (kernel.function, *flags, None, None, kernel.packed_metadata, None, None, None)
        return run.launch, between
    return run, (kernel.function, kernel.packed_metadata, None, None, None)


def _takes_scratch(launcher: CudaLauncher) -> bool:
    return bool(launcher.global_scratch_size or launcher.profile_scratch_size)


def _kind(parameter: Any, arg: Any) -> str:
    """What an argument of a launch is for the choice of its kernel."""
    if isinstance(arg, Tensor):
        return "tensor"
    if parameter.is_constexpr or type(arg) not in (int, float):
        return "value"
    if type(arg) is float:
        return "float"  # never specialises
    return "size" if parameter.do_not_specialize else "stride"


def _aligned(*addresses: int) -> tuple[bool, ...]:
    return tuple(address & 15 == 0 for address in addresses)


def _narrow(*sizes: int) -> tuple[bool, ...]:
    return tuple(-INT32_LIMIT <= size < INT32_LIMIT for size in sizes)


@functools.lru_cache(maxsize=1024)
def _classes(*strides: int) -> str:
    """What Triton specialises integers for: 1, a multiple of 16, beyond 32 bits.

    A text, whose hash is computed once.
    """
    return str([1 if one == 1 else (one & 15 == 0, _narrow(one)) for one in strides])
