"""Less work in the host function that Helion generates, which runs at every launch.

    def _add_row(values, offsets, dense, out, levels, *, _launcher=_default_launcher):
        rows = offsets.size(0) - 1
        total = out.size(0)
        _BLOCK_SIZE_0 = 128
        _RDIM_SIZE_4 = max(triton.next_power_of_2(_BLOCK_SIZE_0), 1)
        _launcher(_helion__add_row, ((total + _BLOCK_SIZE_0 - 1) // _BLOCK_SIZE_0,), offsets, ...,
            dense.stride(0), dense.stride(1), ..., total, rows, levels, num_warps=2, num_stages=1)

What such a function computes from constants and from strides that never change is put in place of
the expressions, a third of the cost of a launch. Sizes stay as they are.
"""

import __future__

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import Any

PURE = ("max", "min", "triton.cdiv", "triton.next_power_of_2")

Strides = Mapping[tuple[str, int], int]
"""Known strides by argument and dimension."""


def fold(function: Callable[..., None], strides: Strides) -> Callable[..., None]:
    """`function` with its constants computed; `strides` are those of every later argument."""
    tree = ast.parse(inspect.getsource(function))
    stored = [
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    known = {place: step for place, step in strides.items() if place[0] not in stored}
    folded = ast.fix_missing_locations(_Fold(function.__globals__, stored, known).visit(tree))
    ast.increment_lineno(folded, function.__code__.co_firstlineno - 1)
    made: dict[str, Any] = {}
    flags = (
        __future__.annotations.compiler_flag
    )  # as in the generated file, which may not import their names
    code = compile(folded, inspect.getfile(function), "exec", flags)
    exec(code, function.__globals__, made)
    result: Callable[..., None] = made[function.__name__]
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
    """Puts integers in place of the expressions that always give them."""

    def __init__(self, names: dict[str, Any], stored: list[str], strides: Strides) -> None:
        self._globals = names
        self._once = {name for name in stored if stored.count(name) == 1}
        self._strides = strides
        self._known: dict[str, int] = {}

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
            case ast.Call(ast.Attribute(ast.Name(name), "stride"), [ast.Constant(int(dim))]):
                if (name, dim) in self._strides:
                    return ast.Constant(self._strides[name, dim])
        pure = ast.unparse(node.func) in PURE and not node.keywords
        return self._computed(node) if pure and all(map(_is_int, node.args)) else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return self._computed(node) if _is_int(node.left) and _is_int(node.right) else node

    def _computed(self, node: ast.expr) -> ast.Constant:
        whole = ast.fix_missing_locations(ast.Expression(node))
        return ast.Constant(eval(compile(whole, "<constant>", "eval"), self._globals))


def _is_int(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int
