"""`python -m jagged.tuning export`: an op's Triton kernels as one file without Helion and jagged.

    python -m jagged.tuning export softmax --shape rows=1024,length=64,width=128 --dtype bfloat16

writes `softmax_forward.py`, whose function `forward` takes what `jagged.kernels.softmax.forward`
takes. It needs torch and Triton alone, and holds the kernels that Helion generates with the config
that `jagged` chooses for the shape on this GPU (without one, for the oldest that has configs). The
number of rows and elements stays free. Everything that the code depends on, widths and dtypes above
all, is compared before each launch; another value is a `ValueError` that names it. The kernels are
those for as many rows, nearly empty to all as long as the longest. A call for which the op takes
another one, as some do for few very long rows, is such an error too: export one for that shape.
"""

import argparse
import ast
import contextlib
import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from helion.runtime.triton import helpers
from torch import Tensor

from jagged.tuning import _arguments, _standalone, operands, tables
from jagged.tuning._bundle import Bundle, module_of
from jagged.tuning.cases import Case
from jagged.tuning.configs import CPU, Config, ConfigTable, capability_of, use_tables
from jagged.tuning.launch import Launchable
from jagged.tuning.operands import Shape
from jagged.tuning.plan import DIRECTIONS, Launch, Observed, observe
from jagged.tuning.tables import Capability

_RUNTIME = ("Config", "Table", "Kernel", "is_wide", "launch")
_HELPERS = "helion_triton_helpers."
_PERMITTED = {"torch", "triton", "math", "functools", "typing", "collections"}


@dataclass(frozen=True)
class _Call(Case):
    """A call with offsets of a dtype."""

    offsets: torch.dtype = torch.int64

    def arguments(self, direction: str, device: str) -> tuple[Any, ...]:
        return operands.make(
            self.op, direction, self.shape, self.dtype, self.offsets, device, self.options
        )


def _observe(call: _Call, direction: str, capability: Capability, device: str) -> Observed:
    """What the call asks and launches, and what it launches with other numbers of elements.

    With the same configs: nearly empty rows, and rows that are all as long as the longest. Some ops
    find rows in another way there.
    """
    seen = observe(call, direction, capability, device)
    for length in (1, call.shape.most):
        shape = dataclasses.replace(call.shape, length=length, longest=call.shape.most)
        picks: dict[ConfigTable, dict[tuple[int, int], Config]] = {}
        for table, (itemsize, width, _), config in seen.picks:
            picks.setdefault(table, {})[itemsize, width] = config
        with contextlib.ExitStack() as stack:
            for table, known in picks.items():
                stack.enter_context(mock.patch.object(table, "pick", partial(_known_pick, known)))
            other = observe(dataclasses.replace(call, shape=shape), direction, capability, device)
        seen.picks.extend(other.picks)
        seen.launches.extend(other.launches)
    return seen


def _known_pick(
    known: Mapping[tuple[int, int], Config], values: Tensor, width: int, _rows: int
) -> Config:
    return known[values.element_size(), width]


class _Trace:
    """What one call of an op picks and launches; nothing runs."""

    def __init__(self, seen: Observed) -> None:
        self.launches = seen.launches
        configs = dict.fromkeys(launch.config for launch in self.launches)
        self.numbers = {config: number for number, config in enumerate(configs)}
        self.picks: dict[int, dict[tuple[int, int], Config]] = {}
        for table, (itemsize, width, _), config in seen.picks:
            known = self.picks.setdefault(id(table), {})
            if known.setdefault((itemsize, width), config) is not config:
                raise ValueError(f"one call picks two configs of {table}, which a file cannot hold")


def export(
    op: str,
    direction: str,
    shape: Shape,
    dtype: torch.dtype,
    offsets_dtype: torch.dtype = torch.int64,
    options: Mapping[str, int] | None = None,
    capability: Capability | None = None,
) -> str:
    """Source of a file whose function `forward` or `backward` runs `op` without Helion and jagged.

    Args:
        op: the op, such as "softmax".
        direction: "forward" or "backward".
        shape: whose config to take, and whose widths to generate for.
        dtype: of the values.
        offsets_dtype: torch.int32 or torch.int64.
        options: those of the op, see `jagged.tuning.operands`.
        capability: of the GPU whose config to take, such as (9, 0); None for the one that is here,
            and without one for the oldest that has configs.

    Raises:
        ValueError: an unknown name, or code that needs Helion when it runs.
    """
    here = torch.cuda.is_available()
    if capability is None:
        capability = capability_of(torch.device("cuda")) if here else CPU
    call = _Call(op, shape, dtype, options or {}, offsets=offsets_dtype)
    module = import_module(f"jagged.kernels.{_known(op)}")
    trace = _Trace(_observe(call, direction, capability, "cuda" if here else "meta"))
    if not trace.launches:
        raise ValueError(f"{op} launches no kernel of jagged for {shape}")
    generated = _Generated()
    variants: dict[int, dict[str, str]] = {}
    for launch in trace.launches:
        kernel = launch.kernel
        key = _key(launch, trace.numbers[launch.config])
        known = variants.setdefault(id(kernel), {})
        if key not in known:
            known[key] = generated.add(launch)
    bundle = Bundle({*_RUNTIME, "torch", "triton", "tl", "Tensor"} | generated.names)
    entry = bundle.add(module, direction)
    for launch in trace.launches:  # also those that no source names, such as kernels in a table
        bundle.add(module_of(launch.kernel), launch.kernel.function.__name__)
    parts = [
        _header(op, direction, shape, dtype, offsets_dtype, options or {}, trace),
        "\n".join(_imports(bundle, generated)),
        _runtime(),
        *generated.helpers(),
        *generated.code,
        *(_made(name, value, trace, variants) for name, value in bundle.objects.items()),
        *bundle.definitions,
    ]
    if entry != direction:
        parts.append(f"{direction} = {entry}\n")
    text = "\n\n".join(part.rstrip() + "\n" for part in parts)
    _refuse_other_packages(text)
    return text


def _known(op: str) -> str:
    if op not in operands.OPS:
        raise ValueError(f"op must be one of {', '.join(operands.OPS)}, got {op!r}")
    return op


class _Generated:
    """Helion's code of each launch, with names that differ between launches."""

    def __init__(self) -> None:
        self.code: list[str] = []
        self.imports: dict[str, None] = {}
        self.names: set[str] = set()
        self._helpers: set[str] = set()

    def add(self, launch: Launch) -> str:
        """Include the code of a launch; gives the name of its launcher."""
        kernel, config, args = launch
        wide = any(_standalone.is_wide(arg) for arg in args if isinstance(arg, Tensor))
        source = kernel.bind(config, [_on_cpu(arg) for arg in args], wide).to_triton_code()
        tree = ast.parse(source)
        kept: list[str] = []
        names: list[str] = []
        lines = source.splitlines()
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._keep_import(node)
                continue
            if isinstance(node, ast.FunctionDef):
                names.append(node.name)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                names.append(node.targets[0].id)
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            kept.append("\n".join(lines[first - 1 : node.end_lineno]))
        text = "\n\n".join(kept)
        launcher = "launch"
        if config.launch_options:
            self.imports["from functools import partial"] = None
            given = ", ".join(f"{name}={value}" for name, value in config.launch_options.items())
            launcher = f"partial(launch, {given})"
        text = text.replace("_launcher=_default_launcher", f"_launcher={launcher}")
        text = re.sub(r"\b_source_module\.(\w+)", partial(_constant, module_of(kernel)), text)
        for name in re.findall(rf"{re.escape(_HELPERS)}(\w+)", text):
            self._helpers.add(name)
        text = text.replace(_HELPERS, "")
        suffix = f"_{len(self.code) + 1}"
        for name in names:
            text = re.sub(rf"\b{re.escape(name)}\b", name + suffix, text)
            self.names.add(name + suffix)
        self.code.append(text)
        return kernel.function.__name__ + suffix

    def _keep_import(self, node: ast.Import | ast.ImportFrom) -> None:
        package = (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        # Helion names the kernel's own module too; whether it is used is checked at the end.
        if package.split(".")[0] not in ("helion", "jagged", "__future__"):
            self.imports[ast.unparse(node)] = None

    def helpers(self) -> Iterator[str]:
        """Helion's device functions that the code calls, and what those call, callees first."""
        tree = ast.parse(inspect.getsource(helpers))
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        done: set[str] = set()

        def collect(name: str) -> Iterator[str]:
            if name in done:
                return
            done.add(name)
            for node in ast.walk(functions[name]):
                if isinstance(node, ast.Name) and node.id in functions:
                    yield from collect(node.id)
            yield ast.unparse(functions[name])

        for name in sorted(self._helpers):
            yield from collect(name)


def _constant(module: ModuleType, use: re.Match[str]) -> str:
    """A number of the kernel's module as itself; anything else is left, and refused at the end."""
    value = getattr(module, use[1])
    return repr(value) if isinstance(value, int | float) else use[0]


def _on_cpu(arg: Any) -> Any:
    """Helion generates no code for tensors on "meta". The memory is never touched."""
    if isinstance(arg, Tensor) and arg.device.type == "meta":
        return torch.empty_strided(arg.shape, arg.stride(), dtype=arg.dtype, device="cpu")
    return arg


def _dynamic(kernel: Launchable) -> list[tuple[int, ...] | None]:
    """For each argument its dynamic dimensions, None for one that is compiled in."""
    parameters = inspect.signature(kernel.function).parameters.values()
    return [
        None if "constexpr" in str(parameter.annotation) else dims
        for parameter, dims in zip(parameters, kernel.dynamic, strict=True)
    ]


def _key(launch: Launch, number: int) -> str:
    """The key of a variant, as source."""
    facts = map(_standalone._fact, launch.args, _dynamic(launch.kernel))
    return repr((number, *facts))


def _made(
    name: str,
    value: Config | ConfigTable | Launchable,
    trace: _Trace,
    variants: Mapping[int, Mapping[str, str]],
) -> str:
    """The statement that makes what is no source."""
    if isinstance(value, Config):
        return f"{name} = {_config(value, trace)}"
    if isinstance(value, ConfigTable):
        picks = trace.picks.get(id(value), {})
        lines = [f"    {case}: {_config(config, trace)}," for case, config in picks.items()]
        return "\n".join([f"{name} = Table({{", *lines, "})"])
    arguments = list(inspect.signature(value.function).parameters)
    known = variants.get(id(value), {})
    lines = [f"        {key}: {launcher}," for key, launcher in known.items()]
    head = f"{name} = Kernel(\n    {value.function.__name__!r},\n    {arguments},\n    "
    return "\n".join([f"{head}{_dynamic(value)},", "    {", *lines, "    },", ")"])


def _config(config: Config, trace: _Trace) -> str:
    return f"Config({trace.numbers.get(config, -1)}, {config.form!r}, {config.constants})"


def _imports(bundle: Bundle, generated: _Generated) -> list[str]:
    needed = [
        "from collections.abc import Callable, Mapping, Sequence",
        "from typing import Any, NamedTuple",
        "import torch",
        "import triton",
        "import triton.language as tl",
        "from torch import Tensor",
    ]
    return list(dict.fromkeys([*needed, *bundle.imports, *generated.imports]))


def _runtime() -> str:
    """`_standalone` without its docstring and imports."""
    source = inspect.getsource(_standalone)
    return source[source.index("class Config") :]


def _header(
    op: str,
    direction: str,
    shape: Shape,
    dtype: torch.dtype,
    offsets_dtype: torch.dtype,
    options: Mapping[str, int],
    trace: _Trace,
) -> str:
    used = [f"    {launch.kernel.function.__name__}: {launch.config}" for launch in trace.launches]
    sizes = {name: value for name, value in dataclasses.asdict(shape).items() if value}
    given = ", ".join(f"{name}={value}" for name, value in {**sizes, **options}.items())
    return f'''"""The {direction} of {op} as Triton kernels: needs torch and Triton alone.

Generated for {dtype} values and {offsets_dtype} offsets, {given},
by jagged with Helion {metadata.version("helion")} (both BSD-3-Clause).
The function `{direction}` takes the arguments of `jagged.kernels.{op}.{direction}`. The number of
rows and elements is free; a call that the code was not generated for, or for which the op would
take another kernel, is a ValueError. Configs:

{chr(10).join(dict.fromkeys(used))}
"""

from __future__ import annotations
'''


def _refuse_other_packages(text: str) -> None:
    """The file must stand alone."""
    tree = ast.parse(text)
    packages = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    others = packages - _PERMITTED - {"__future__"}
    runtime = sorted(set(re.findall(r"\b(?:helion|_source_module)\.[\w.]+", text)))
    if others or runtime:
        raise ValueError(
            f"the generated code needs {', '.join([*sorted(others), *runtime])} when it runs, "
            "so it cannot stand alone: choose another config"
        )


def register(subparsers: Any) -> None:
    """Add `export` to the command line."""
    parser = subparsers.add_parser(
        "export",
        help="write an op's Triton kernels as one file without Helion and jagged",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _arguments.add_call(parser)
    parser.add_argument("--direction", choices=DIRECTIONS, default="forward")
    parser.add_argument("--offsets", choices=("int32", "int64"), default="int64")
    parser.add_argument("--output", type=Path, help="the file; OP_DIRECTION.py if not given")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the file that the command line asks for; the exit status."""
    path = arguments.output or Path(f"{arguments.op}_{arguments.direction}.py")
    tables.require_writable(path)
    use_tables(arguments.tables)
    text = export(
        arguments.op,
        arguments.direction,
        arguments.shape,
        getattr(torch, arguments.dtype),
        getattr(torch, arguments.offsets),
        operands.parse_options(arguments.option),
        arguments.capability,
    )
    with tables.replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"{path}: {arguments.direction} of {arguments.op}, {len(text.splitlines())} lines")
    return 0
