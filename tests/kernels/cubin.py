"""Compile the Triton code that Helion generates to an sm_90 cubin, on a machine without a GPU."""

import importlib.util
import re
import subprocess
import tempfile
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from jagged.tuning.configs import Config
from jagged.tuning.launch import Launchable
from tests.kernels.fake_h200 import FakeDevice, fake_h200

TARGET = GPUTarget("cuda", 90, 32)
_TYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "i1",
}
_TOOLS = Path(triton.__path__[0]) / "backends" / "nvidia" / "bin"


@dataclass(frozen=True)
class Cubin:
    """What ptxas made of one launch."""

    name: str
    registers: int
    stack: int  # bytes of local memory a thread: spills
    shared: int  # bytes
    wgmma: int  # instructions
    ptx: str = field(repr=False)


def compile_kernel(kernel: Launchable, config: Config, args: tuple[Any, ...]) -> list[Cubin]:
    """The cubins of every launch of `kernel`; `args` are tensors on any device, meta included."""
    with fake_h200():
        device = FakeDevice()
        fake = tuple(
            device.tensor(arg, dims) if isinstance(arg, Tensor) else arg
            for arg, dims in zip(args, kernel.dynamic, strict=True)
        )
        code = kernel.bind(config, fake).to_triton_code()
        launches: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

        def record(jit: Any, grid: Any, *values: Any, **options: Any) -> None:
            launches.append((jit, values, options))

        with tempfile.TemporaryDirectory() as folder, device.mode:
            module = _load(code, Path(folder))
            getattr(module, kernel.function.__name__)(*fake, _launcher=record)
            return [_compile(*launch) for launch in launches]


def _load(code: str, folder: Path) -> types.ModuleType:
    path = folder / "generated.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location("generated", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile(jit: Any, values: tuple[Any, ...], options: dict[str, Any]) -> Cubin:
    signature: dict[str, str] = {}
    constants: dict[tuple[int], Any] = {}
    attributes: dict[tuple[int], list[list[Any]]] = {}
    for index, (parameter, value) in enumerate(zip(jit.params, values, strict=True)):
        kind = "constexpr"
        if parameter.is_constexpr or value is None:
            constants[(index,)] = value
        elif isinstance(value, Tensor):
            kind = "*" + _TYPES[value.dtype]
            attributes[(index,)] = [["tt.divisibility", 16]]
        elif isinstance(value, bool):
            kind = "i1"
        elif isinstance(value, float):
            kind = "fp32"
        elif int(value) == 1:
            constants[(index,)] = 1
        else:
            kind = "i32" if -(2**31) <= int(value) < 2**31 else "i64"
            if int(value) % 16 == 0:
                attributes[(index,)] = [["tt.divisibility", 16]]
        signature[parameter.name] = kind
    chosen = {
        name: options[name]
        for name in ("num_warps", "num_stages", "maxnreg")
        if options.get(name) is not None
    }
    compiled = triton.compile(
        ASTSource(jit, signature, constants, attributes), target=TARGET, options=chosen
    )
    usage = _resource_usage(compiled.asm["cubin"])
    return Cubin(
        name=jit.fn.__name__,
        registers=int(re.findall(r"REG:(\d+)", usage)[0]),
        stack=int(re.findall(r"STACK:(\d+)", usage)[0]),
        shared=compiled.metadata.shared,
        wgmma=compiled.asm["ptx"].count("wgmma.mma_async"),
        ptx=compiled.asm["ptx"],
    )


def _resource_usage(cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(_TOOLS / "cuobjdump"), "-res-usage", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
