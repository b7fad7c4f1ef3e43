"""Compiling a kernel for a GPU that need not be there: registers, spills, shared memory.

Helion generates the code for fake tensors while `torch.cuda` pretends to be the target; Triton and
its ptxas make the machine code, as they do at a first launch. Nothing runs. While `pretend` is open
the whole process believes it, so the tuner does this in processes of its own.
"""

import contextlib
import re
import subprocess
import tempfile
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import helion
import torch
import triton
from helion.exc import InvalidConfig
from torch import Tensor
from torch._dynamo.source import ConstantSource
from torch._inductor.runtime import hints
from torch._subclasses import FakeTensorMode, fake_tensor
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import MockTensor

from jagged.tuning.configs import Config
from jagged.tuning.launch import Launchable, keep_sizes_general
from jagged.tuning.tables import module_from


@dataclass(frozen=True)
class Target:
    """What generated code depends on of a GPU."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_memory: int
    """Bytes that one block may use."""
    shared_memory_all: int
    """Bytes of a multiprocessor."""

    @classmethod
    def of(cls, device: torch.device | str) -> "Target":
        """A GPU of this machine."""
        found = torch.cuda.get_device_properties(device)
        return cls(
            found.name,
            (found.major, found.minor),
            found.multi_processor_count,
            found.shared_memory_per_block_optin,  # type: ignore[attr-defined]
            found.shared_memory_per_multiprocessor,
        )


H200 = Target("NVIDIA H200", (9, 0), 132, 232448, 233472)

_TOOLS = Path(triton.__path__[0]) / "backends" / "nvidia" / "bin"


@contextlib.contextmanager
def pretend(target: Target) -> Iterator[None]:
    """torch.cuda answers as on the target inside."""
    major, minor = target.capability
    properties = types.SimpleNamespace(
        name=target.name,
        major=major,
        minor=minor,
        multi_processor_count=target.multiprocessors,
        total_memory=64 * 2**30,
        warp_size=32,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=target.shared_memory,
        shared_memory_per_multiprocessor=target.shared_memory_all,
        L2_cache_size=60 * 2**20,
        gcnArchName="",
        is_integrated=False,
        is_multi_gpu_board=False,
        uuid="",
    )
    answers = {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_capability": lambda device=None: target.capability,
        "get_device_properties": lambda device=None: properties,
        "get_device_name": lambda device=None: target.name,
        "_lazy_init": lambda: None,
    }
    facts: dict[str, Any] = {
        "type": "cuda",
        "index": 0,
        "multi_processor_count": target.multiprocessors,
        "cc": 10 * major + minor,
        "major": major,
        "regs_per_multiprocessor": 65536,
        "max_threads_per_multi_processor": 2048,
        "max_threads_per_block": 1024,
        "warp_size": 32,
    }
    # Not every version of torch has all of them.
    known = {name: facts[name] for name in hints.DeviceProperties._fields if name in facts}
    inductor = hints.DeviceProperties(**known)
    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        stack.enter_context(mock.patch.object(torch.version, "cuda", "13.0"))
        create = classmethod(lambda cls, device: inductor)
        stack.enter_context(mock.patch.object(hints.DeviceProperties, "create", create))
        stack.enter_context(mock.patch.object(driver, "_active", _Driver(target)))
        # With a CUDA build of torch the first fake tensor would ask for the driver.
        stack.enter_context(mock.patch.object(fake_tensor, "init_gpu_context"))
        yield


class _Driver:
    """What Triton asks of a GPU's driver when it compiles."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def get_current_target(self) -> GPUTarget:
        major, minor = self._target.capability
        return GPUTarget("cuda", 10 * major + minor, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int) -> int:
        return 0


class FakeDevice:
    """Tensors that seem to be on the target, with sizes that Helion must keep symbolic."""

    def __init__(self) -> None:
        self._shapes = ShapeEnv(duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self._shapes)

    def tensor(self, like: Tensor, dynamic: tuple[int, ...]) -> Tensor:
        """Shape, strides and dtype of `like`; the dimensions in `dynamic` are symbols."""
        shape = [
            self._symbol(size) if dim in dynamic and size > 1 else size
            for dim, size in enumerate(like.shape)
        ]
        with self.mode:
            return torch.empty_strided(shape, like.stride(), dtype=like.dtype, device="cuda:0")

    def arguments(self, kernel: Launchable, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Such tensors in place of those among a kernel's arguments."""
        return tuple(
            self.tensor(arg, dims) if isinstance(arg, Tensor) else arg
            for arg, dims in zip(args, kernel.dynamic, strict=True)
        )

    def _symbol(self, size: int) -> torch.SymInt:
        source = ConstantSource(f"size_{len(self._shapes.var_to_range)}")
        symbol = self._shapes.create_symbol(size, source, DimDynamic.DYNAMIC, None)
        made = self._shapes.create_symintnode(symbol, hint=size, source=source)
        assert isinstance(made, torch.SymInt)
        return made


@dataclass(frozen=True)
class Cubin:
    """What ptxas made of one launch."""

    name: str
    registers: int
    stack: int  # bytes of local memory a thread: spills
    shared: int  # bytes
    wgmma: int  # instructions
    ptx: str = field(repr=False)
    ttgir: str = field(repr=False)


def compile_kernel(
    kernel: Launchable, config: Config, args: tuple[Any, ...], target: Target = H200
) -> list[Cubin]:
    """The cubins of every launch of `kernel`; `args` are tensors on any device, meta included.

    Raises:
        ValueError: the config does not fit the kernel; what Helion and Triton raise is raised.
    """
    with pretend(target):
        device = FakeDevice()
        fake = device.arguments(kernel, args)
        code = bind(kernel, config, fake).to_triton_code()
        launches: list[tuple[Any, Any, tuple[Any, ...], dict[str, Any]]] = []

        def record(jit: Any, grid: Any, *values: Any, **options: Any) -> None:
            launches.append((jit, grid, values, options | config.launch_options))

        with tempfile.TemporaryDirectory() as folder, device.mode:
            function = getattr(_load(code, Path(folder)), kernel.function.__name__)
            keep_sizes_general(function, kernel.tensor_names(args))
            function(*fake, _launcher=record)
            return [_compile(*launch) for launch in launches]


def bind(kernel: Launchable, config: Config, args: tuple[Any, ...]) -> Any:
    """`kernel.bind`, inside `pretend`, for a config that may not fit.

    Raises:
        ValueError: it does not; the message names the kernel and says why.
    """
    name = kernel.function.__name__
    try:
        bound = kernel.bind(config, args)
    except InvalidConfig as error:
        raise ValueError(f"the config does not fit the kernel {name}: {_reason(error)}") from error
    reason = misfit(bound.config_spec, config)
    if reason:
        raise ValueError(f"the config does not fit the kernel {name}: {reason}")
    return bound


def misfit(spec: Any, config: Config) -> str:
    """Why a config does not fit what Helion says of a kernel (its `config_spec`), or ""."""
    try:
        spec.normalize(helion.Config(**config.settings))
    except InvalidConfig as error:
        return _reason(error)
    # Helion fills up short lists, but a list that is given is meant to be whole.
    for name in ("loop_orders", "l2_groupings", "reduction_loops"):
        given, wanted = config.settings.get(name), len(getattr(spec, name))
        if given is not None and len(given) != wanted:
            return f"it takes {wanted} {name}, the config has {len(given)}"
    return ""


def _reason(error: InvalidConfig) -> str:
    return str(error).strip().split("\n", 1)[0]


def _load(code: str, folder: Path) -> types.ModuleType:
    path = folder / "generated.py"
    path.write_text(code)
    return module_from(path, "generated")


def _compile(jit: Any, grid: Any, values: tuple[Any, ...], options: dict[str, Any]) -> Cubin:
    args = [
        MockTensor(value.dtype)  # aligned, as all tensors are that torch allocates
        if isinstance(value, Tensor)
        else int(value)
        if isinstance(value, torch.SymInt)
        else value
        for value in values
    ]
    compiled = jit.warmup(*args, grid=grid, **options)
    usage = _resource_usage(compiled.asm["cubin"])
    return Cubin(
        name=jit.fn.__name__,
        registers=int(re.findall(r"REG:(\d+)", usage)[0]),
        stack=int(re.findall(r"STACK:(\d+)", usage)[0]),
        shared=compiled.metadata.shared,
        wgmma=compiled.asm["ptx"].count("wgmma.mma_async"),
        ptx=compiled.asm["ptx"],
        ttgir=compiled.asm["ttgir"],
    )


def _resource_usage(cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(_TOOLS / "cuobjdump"), "-res-usage", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
