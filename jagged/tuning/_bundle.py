"""The source of a function and of everything it uses from this package, as one text."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from jagged.tuning.configs import Config, ConfigTable
from jagged.tuning.launch import Launchable

Definition = tuple[str, str]  # module, name


class Bundle:
    """Definitions in the order in which they must stand, imports apart.

    Args:
        reserved: names that definitions may not have in the text.
    """

    def __init__(self, reserved: set[str]) -> None:
        self.imports: dict[str, None] = {}
        self.definitions: list[str] = []
        self.objects: dict[str, Config | ConfigTable | Launchable] = {}
        """What is no source but has to be made: by the name that the text uses for it."""
        self._names: dict[Definition, str] = {}
        self._by_object: dict[int, str] = {}
        self._taken = set(reserved)

    def add(self, module: ModuleType, name: str) -> str:
        """Include a global of `module` and all that it needs; gives its name in the text."""
        value = vars(module)[name]
        if isinstance(value, Config | ConfigTable | Launchable):
            if id(value) not in self._by_object:
                self._by_object[id(value)] = self._free(name)
                self.objects[self._by_object[id(value)]] = value
            return self._by_object[id(value)]
        node = _definitions(module)[name]
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jagged."):
            original = next(a.name for a in node.names if (a.asname or a.name) == name)
            return self.add(import_module(str(node.module)), original)
        if isinstance(node, ast.Import | ast.ImportFrom):
            alias = next(a for a in node.names if (a.asname or a.name) == name)
            single: ast.stmt = ast.Import([alias])
            if isinstance(node, ast.ImportFrom):
                single = ast.ImportFrom(node.module, [alias], node.level)
            self.imports[ast.unparse(single)] = None
            return name
        definition = module.__name__, name
        if definition not in self._names:
            self._names[definition] = self._free(name)
            self.definitions.append(self._text(module, node, name))
        return self._names[definition]

    def _free(self, name: str) -> str:
        chosen, number = name, 1
        while chosen in self._taken:
            number += 1
            chosen = f"{name}_{number}"
        self._taken.add(chosen)
        return chosen

    def _text(self, module: ModuleType, node: ast.stmt, name: str) -> str:
        """The source of `node` with the names that globals have in the text."""
        edits: list[tuple[ast.expr, str]] = []
        known = vars(module)
        for used in _used(node):
            if isinstance(used, ast.Attribute):
                base = used.value
                assert isinstance(base, ast.Name)
                target = known.get(base.id)
                if isinstance(target, ModuleType) and target.__name__.startswith("jagged."):
                    edits.append((used, self.add(target, used.attr)))
            elif used.id in known:
                target = known[used.id]
                if isinstance(target, ModuleType) and target.__name__.startswith("jagged."):
                    continue  # its attribute is what is used
                edits.append((used, self.add(module, used.id)))
        lines = _lines(module)
        own = self._names[module.__name__, name]
        return _edited(lines, node, edits, name, own)


def module_of(kernel: Launchable) -> ModuleType:
    """Where a kernel is defined."""
    return sys.modules[kernel.function.__module__]


@cache
def _lines(module: ModuleType) -> list[bytes]:
    assert module.__file__ is not None
    return Path(module.__file__).read_bytes().splitlines(keepends=True)


@cache
def _definitions(module: ModuleType) -> dict[str, ast.stmt]:
    """The statement of a module that binds each of its globals."""
    bound: dict[str, ast.stmt] = {}
    for node in ast.parse(b"".join(_lines(module))).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound.update((alias.asname or alias.name, node) for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                names = [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]
                bound.update((name, node) for name in names)
    return bound


def _used(node: ast.AST, local: frozenset[str] = frozenset()) -> Iterator[ast.Name | ast.Attribute]:
    """Globals that are read in `node`, annotations apart: those are never evaluated."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        local |= _bound(node)
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            base = child.value if isinstance(child, ast.Attribute) else child
            if isinstance(base, ast.Name) and isinstance(base.ctx, ast.Load | ast.Del):
                free = [] if base.id in local else [base]
                yield from [child] if isinstance(child, ast.Attribute) and free else free
            yield from _used(child, local)


def _bound(function: ast.FunctionDef | ast.Lambda) -> frozenset[str]:
    """The local names of a function."""
    arguments = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    stored = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return frozenset(arguments | stored)


def _edited(
    lines: list[bytes], node: ast.stmt, edits: list[tuple[ast.expr, str]], name: str, own: str
) -> str:
    """The lines of `node` with each expression of `edits` replaced."""
    decorators: list[Any] = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    text = list(lines[first - 1 : node.end_lineno])
    places = {(e.lineno, e.col_offset, e.end_col_offset or 0): new for e, new in edits}
    for (line, start, end), new in sorted(places.items(), reverse=True):
        old = text[line - first]
        text[line - first] = old[:start] + new.encode() + old[end:]
    if own != name:
        text[node.lineno - first] = text[node.lineno - first].replace(
            name.encode(), own.encode(), 1
        )
    return b"".join(text).decode().rstrip() + "\n"
