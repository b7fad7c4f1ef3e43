"""Less work in the host function that Helion generates, which runs at every launch.

    def _add_row(values, offsets, dense, out, levels, *, _launcher=_default_launcher):
        rows = offsets.size(0) - 1
        total = out.size(0)
        _BLOCK_SIZE_0 = 128
        _RDIM_SIZE_4 = max(triton.next_power_of_2(_BLOCK_SIZE_0), 1)
        _launcher(_helion__add_row, ((total + _BLOCK_SIZE_0 - 1) // _BLOCK_SIZE_0,), offsets, ...,
            dense.stride(0), dense.stride(1), ..., total, rows, levels, num_warps=2, num_stages=1)

What such a function computes from constants and from strides that never change is put in place of
the expressions. The other strides and the sizes of an argument are asked for at once, since
`values.size(0)` costs more than the whole shape. Its launches become calls of functions that know
what is constant, `_launch_0((total + 127) // 128, offsets, ..., total, rows, levels)`; `_direct`
has them.
"""

import __future__

import ast
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

PURE = ("max", "min", "triton.cdiv", "triton.next_power_of_2")

Strides = Mapping[tuple[str, int], int]
"""Known strides by argument and dimension."""

Launch = Callable[..., None]
"""Gets the sizes of the grid and the arguments that change."""


class Site(NamedTuple):
    """One launch in a host function."""

    kernel: Any
    """Triton's `JITFunction`."""
    dimensions: int
    """Of the grid."""
    args: tuple[str | None, ...]
    """Of the kernel: those that never change, as source; None for those given at each launch."""
    options: dict[str, Any]


def fold(
    function: Callable[..., None],
    strides: Strides,
    launcher: Callable[[Site, Callable[[Launch], None]], Launch],
) -> Callable[..., None]:
    """`function`, without `_launcher`, with its constants computed.

    Args:
        function: what Helion made.
        strides: those of every later argument.
        launcher: makes the function that a launch calls; gets another, which replaces it.
    """
    tree = ast.parse(inspect.getsource(function))
    stored = [
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    known = {place: step for place, step in strides.items() if place[0] not in stored}
    folding = _Fold(function.__globals__, stored, known)
    folded = ast.fix_missing_locations(folding.visit(tree))
    ast.increment_lineno(folded, function.__code__.co_firstlineno - 1)
    names = dict(function.__globals__)
    for name, site in folding.sites.items():
        names[name] = launcher(site, functools.partial(names.__setitem__, name))
    # As in the generated file, which need not import the names of its annotations.
    flags = __future__.annotations.compiler_flag
    exec(compile(folded, inspect.getfile(function), "exec", flags), names)
    result: Callable[..., None] = names[function.__name__]
    return result


def contiguous_strides(
    shapes: Mapping[str, tuple[int, ...]], dynamic: Mapping[str, int]
) -> dict[tuple[str, int], int]:
    """The strides of contiguous tensors that do not depend on their leading, dynamic sizes.

    Args:
        shapes: of tensors, by the name of the argument.
        dynamic: for each name, how many of the first dimensions are dynamic.
    """
    known = {}
    for name, shape in shapes.items():
        step = 1
        for dim in range(len(shape) - 1, dynamic[name] - 2, -1):
            if dim >= 0:
                known[name, dim] = step
                step *= max(shape[dim], 1)
    return known


class _Fold(ast.NodeTransformer):
    """Puts integers in place of the expressions that always give them, and collects launches."""

    def __init__(self, names: dict[str, Any], stored: list[str], strides: Strides) -> None:
        self.sites: dict[str, Site] = {}
        self._globals = names
        self._once = {name for name in stored if stored.count(name) == 1}
        self._strides = strides
        self._stored = stored
        self._known: dict[str, int] = {}
        self._asked: dict[str, ast.stmt] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.args.kwonlyargs, node.args.kw_defaults = [], []  # _launcher
        node.body[:0] = self._asked.values()
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign | None:
        self.generic_visit(node)
        match node:
            case ast.Assign([ast.Name(name)], ast.Constant(int(value))) if name in self._once:
                self._known[name] = value
                return None
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._known[node.id]) if node.id in self._known else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name("_launcher"), [kernel, ast.Tuple(grid), *args], options):
                return self._launch(kernel, grid, args, options)
            case ast.Call(ast.Attribute(ast.Name(name), "stride"), [ast.Constant(int(dim))]):
                if (name, dim) in self._strides:
                    return ast.Constant(self._strides[name, dim])
                if name not in self._stored:
                    return self._part(f"_{name}_strides", f"{name}.stride()", dim)
            case ast.Call(ast.Attribute(ast.Name(name), "size"), [ast.Constant(int(dim))]):
                if name not in self._stored:
                    return self._part(f"_{name}_shape", f"{name}.shape", dim)
        pure = ast.unparse(node.func) in PURE and not node.keywords
        return self._computed(node) if pure and all(map(_is_int, node.args)) else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return self._computed(node) if _is_int(node.left) and _is_int(node.right) else node

    def _launch(
        self,
        kernel: ast.expr,
        grid: list[ast.expr],
        args: list[ast.expr],
        options: list[ast.keyword],
    ) -> ast.expr:
        name = f"_launch_{len(self.sites)}"
        fixed = tuple(ast.unparse(arg) if isinstance(arg, ast.Constant) else None for arg in args)
        given = {option.arg: ast.literal_eval(option.value) for option in options if option.arg}
        self.sites[name] = Site(self._value(kernel), len(grid), fixed, given)
        changing = [arg for arg, source in zip(args, fixed, strict=True) if source is None]
        return ast.Call(ast.Name(name, ast.Load()), [*grid, *changing], [])

    def _part(self, name: str, source: str, dim: int) -> ast.expr:
        """Element `dim` of `source`, which the function computes first and calls `name`."""
        self._asked[name] = ast.parse(f"{name} = {source}").body[0]
        return ast.Subscript(ast.Name(name, ast.Load()), ast.Constant(dim), ast.Load())

    def _computed(self, node: ast.expr) -> ast.Constant:
        return ast.Constant(self._value(node))

    def _value(self, node: ast.expr) -> Any:
        whole = ast.fix_missing_locations(ast.Expression(node))
        return eval(compile(whole, "<constant>", "eval"), self._globals)


def _is_int(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int
