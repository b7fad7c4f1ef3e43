"""Tables of configs as files: the format of Helion's AOT heuristics, with room for our kernels.

A file `_helion_aot_<stem>_cuda_sm<NN>.py` holds the tables of one kernel file `<stem>.py` for one
compute capability (sm90 for 9.0), and stands beside it. For each `<kernel>` in it, as Helion's own:

    def key_<kernel>(itemsize, width, length) -> int         # index of a config: a decision
    def autotune_<kernel>(itemsize, width, length) -> dict   # that config

`<kernel>` is the kernel's function, or the function that chooses among several kernels. The
features are known on the host: bytes an element, features an element (the width of the widest
operand), mean row length T / B. So Helion loads a file for `helion.aot_kernel(key=...)` whose key
gives these three, and a file that Helion's `aot_runner` made with such a key is as good as ours.

A config has Helion's settings, and up to three keys that are split off before Helion sees the rest:
`form`, which of several kernels runs; `constants`, values of its compile-time arguments by name
(passed in this order); `maxnreg`, which the launcher hands to Triton. Helion takes what has none.

What `jagged.tuning` writes has one more name, `POINTS_<kernel>`: the points behind the decision,
{(itemsize, width, length): index}. It is what the tuner adds to, and what tests compile.
"""

import contextlib
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from jagged.tuning.decision import Point, decide, source

Capability = tuple[int, int]
Entries = dict[Point, dict[str, Any]]
"""The config of each point of a table."""

_NAME = re.compile(r"_helion_aot_(.+)_cuda_sm(\d+)(\d)\.py")
_SINGLE = re.compile(r"heuristic_(.+)\.py")  # Helion's older name, of one kernel's table
_HEADER = '''"""Configs of {stem}.py on CUDA devices of compute capability {major}.{minor}.

Written by `python -m jagged.tuning`; the format is described in `jagged/tuning/tables.py`.
"""
'''
_FUNCTIONS = '''

POINTS_{name} = {{
{points}
}}


def key_{name}(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
{decision}


def autotune_{name}(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
{configs}
    ]
    return _C[key_{name}(itemsize, width, length)]
'''


def stem_of(source_file: str | Path) -> str:
    """What the tables of a kernel file are named after: its stem, its folder's for a package."""
    path = Path(source_file)
    return path.parent.name if path.stem == "__init__" else path.stem


def file_name(stem: str, capability: Capability) -> str:
    """The name of a file of tables."""
    return f"_helion_aot_{stem}_cuda_sm{capability[0]}{capability[1]}.py"


def parts_of(path: Path) -> tuple[str, Capability]:
    """The stem and the capability that a file of tables is named after."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path} has no name of a file of tables")
    return match[1], (int(match[2]), int(match[3]))


def files(folder: Path, stem: str) -> dict[Capability, Path]:
    """The files in `folder` of one kernel file, by capability."""
    found = {}
    for path in sorted(folder.glob(f"_helion_aot_{stem}_cuda_sm*.py")):
        match = _NAME.fullmatch(path.name)
        if match is not None and match[1] == stem:
            found[int(match[2]), int(match[3])] = path
    return found


def any_in(folder: Path) -> bool:
    """Whether there are tables in a folder, whatever of."""
    return any(_NAME.fullmatch(path.name) or _SINGLE.fullmatch(path.name) for path in _all(folder))


def unread(folder: Path, known: Mapping[str, Collection[str]]) -> Iterator[tuple[Path, str]]:
    """Files in a folder, and tables of files ("" for all of a file), that nothing asks for.

    Args:
        folder: of a user.
        known: the names of the tables of each kernel file, by its stem.
    """
    singles = {name for names in known.values() for name in names}
    for path in _all(folder):
        match, single = _NAME.fullmatch(path.name), _SINGLE.fullmatch(path.name)
        if (match and match[1] not in known) or (single and single[1] not in singles):
            yield path, ""
        elif match:
            yield from ((path, name) for name in names(path) if name not in known[match[1]])


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.py"))


def load(path: Path) -> ModuleType:
    """The file as a module, kept until it changes.

    Raises:
        ValueError: it cannot be run, or has no table, or a part of one: it was cut short, say.
    """
    return _load(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _load(path: Path, _changed: int) -> ModuleType:
    try:
        module = module_from(path, path.stem)
    except Exception as error:
        raise ValueError(_damaged(path, f"{type(error).__name__}: {error}")) from error
    found = {kind: _named(module, kind) for kind in ("autotune_", "key_", "POINTS_")}
    for kind in ("key_", "POINTS_"):
        for name in found[kind]:
            if name not in found["autotune_"]:
                raise ValueError(_damaged(path, f"{kind}{name} without autotune_{name}"))
    if not found["autotune_"]:
        raise ValueError(_damaged(path, "it has no table"))
    return module


def _damaged(path: Path, why: str) -> str:
    return f"{path} is damaged, or no file of tables ({why}): delete it and tune again"


def _named(module: ModuleType, kind: str) -> list[str]:
    return [name.removeprefix(kind) for name in vars(module) if name.startswith(kind)]


def module_from(path: Path, name: str, *, importable: bool = False) -> ModuleType:
    """A file run as a new module; `importable`: under its name from then on."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded as a Python file")
    module = importlib.util.module_from_spec(spec)
    if importable:
        sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def choice(path: Path, name: str, point: Point) -> dict[str, Any] | None:
    """The config that a file gives for a point; None where it has no table of that name.

    Raises:
        ValueError: the file is damaged, or does not answer with a config.
    """
    function = getattr(load(path), f"autotune_{name}", None)
    if function is None:
        return None
    try:
        found = function(*point)
    except Exception as error:
        raise ValueError(
            f"{path}: autotune_{name}{point} raised {type(error).__name__}: {error}; it is asked "
            "for (itemsize, width, length)"
        ) from error
    if not isinstance(found, Mapping):
        raise ValueError(f"{path}: autotune_{name}{point} gave {found!r}, expected a dict")
    return dict(found)


def entries(path: Path, name: str) -> Entries:
    """The points of a table and their configs; none where the file has no such table.

    Raises:
        ValueError: there is a table, but without points: it was not written by `jagged.tuning`.
    """
    if name not in names(path):
        return {}
    if not has_points(path, name):
        raise ValueError(
            f"{path} has no POINTS_{name}: it was not written by jagged.tuning, which can use it "
            "but not add to it; give another folder to write to"
        )
    points = getattr(load(path), f"POINTS_{name}")
    return {point: choice(path, name, point) or {} for point in points}


def has_points(path: Path, name: str) -> bool:
    """Whether a table was written by `jagged.tuning`, not by Helion."""
    return hasattr(load(path), f"POINTS_{name}")


def names(path: Path) -> list[str]:
    """The tables of a file."""
    return _named(load(path), "autotune_")


def render(stem: str, capability: Capability, tables: Mapping[str, Entries]) -> str:
    """The text of a file."""
    text = _HEADER.format(stem=stem, major=capability[0], minor=capability[1])
    for name, table in tables.items():
        configs: list[dict[str, Any]] = []
        points: list[tuple[Point, int]] = []
        for point, config in table.items():
            if config not in configs:
                configs.append(config)
            points.append((point, configs.index(config)))
        text += _FUNCTIONS.format(
            name=name,
            points="\n".join(f"    {point}: {index}," for point, index in points),
            decision="\n".join(source(decide(points))),
            configs="\n".join(f"        {config!r}," for config in configs),
        )
    return text


def write(folder: Path, stem: str, capability: Capability, tables: Mapping[str, Entries]) -> Path:
    """Write these tables into `folder`; other tables of the same file there are kept.

    A reader sees the old file or the new one, never a part.
    """
    path = folder / file_name(stem, capability)
    kept = {name: entries(path, name) for name in names(path)} if path.exists() else {}
    return replace(folder, stem, capability, {**kept, **tables})


def replace(folder: Path, stem: str, capability: Capability, tables: Mapping[str, Entries]) -> Path:
    """Write a file of these tables and no others; without any, there is no file."""
    path = folder / file_name(stem, capability)
    if not tables:
        path.unlink(missing_ok=True)
        return path
    text = render(stem, capability, tables)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def require_writable(path: Path) -> None:
    """Refuse now what `replacing` would refuse later; the folder is made where there is none.

    Raises:
        OSError: no file can be written to `path`.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a file to write to")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise type(error)(f"{path} cannot be written: {error}") from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` to write to, which then takes its place at once."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
