"""The differentiable operands of each kind of op, and the shapes of results."""

import torch
from torch import Tensor

from bench.inputs import Inputs, Maker
from bench.shapes import Shape


def trailing(shape: Shape) -> tuple[int, ...]:
    return () if shape.features is None else (shape.features,)


def values(shape: Shape, total: int, make: Maker) -> dict[str, Tensor]:
    return {"values": make(total, *trailing(shape))}


def affine(shape: Shape, total: int, make: Maker) -> dict[str, Tensor]:
    width = shape.width
    return {"values": make(total, width), "weight": make(width), "bias": make(width)}


def gated(shape: Shape, total: int, make: Maker) -> dict[str, Tensor]:
    """As `affine`, with a gate that is a view of a projection four times as wide."""
    width = shape.width
    u = make(total, 4 * width)[:, :width]
    return {"values": make(total, width), "u": u, "weight": make(width), "bias": make(width)}


def with_cells(shape: Shape, total: int, make: Maker) -> dict[str, Tensor]:
    """Values [T, D] and dense [B, N, D]."""
    features = trailing(shape)
    dense = make(shape.rows, shape.longest, *features)
    return {"values": make(total, *features), "dense": dense}


def with_rows(shape: Shape, total: int, make: Maker) -> dict[str, Tensor]:
    """Values [T, D] and dense [B, D]."""
    features = trailing(shape)
    return {"values": make(total, *features), "dense": make(shape.rows, *features)}


def cells(shape: Shape, total: int, make: Maker) -> dict[str, Tensor]:
    """Dense [B, N, D]."""
    return {"dense": make(shape.rows, shape.longest, *trailing(shape))}


def matrices(shape: Shape, total: int, make: Maker) -> dict[str, Tensor]:
    """Values [T, K], dense [B, K, N] and maybe bias [B, N]."""
    operands = {
        "values": make(total, shape.width),
        "dense": make(shape.rows, shape.width, shape.columns),
    }
    if shape.bias:
        operands["bias"] = make(shape.rows, shape.columns)
    return operands


def pair(shape: Shape, total: int, make: Maker) -> dict[str, Tensor]:
    """x [T, M] and y [T, N]."""
    return {"x": make(total, shape.width), "y": make(total, shape.columns)}


def heads(shape: Shape, total: int, make: Maker) -> dict[str, Tensor]:
    """q, k [T, H, D], v [T, H, V] and the tables of a relative bias."""
    options = shape.attention
    assert options is not None
    widths = [shape.width, shape.width, options.value_features]
    if options.fused:
        parts = torch.split(make(total, options.heads, sum(widths)), widths, 2)
    else:
        parts = tuple(make(total, options.heads, width) for width in widths)
    operands = dict(zip("qkv", parts, strict=True))
    if options.position:
        operands["position_table"] = make(2 * shape.longest - 1, dtype=torch.float32)
    if options.time:
        operands["time_table"] = make(129, dtype=torch.float32)
    return operands


def by_row(inputs: Inputs) -> tuple[int, ...]:
    """[B, D]"""
    return (inputs.rows, *trailing(inputs.shape))


def by_element(inputs: Inputs) -> tuple[int, ...]:
    """[T, D]"""
    return (inputs.total, *trailing(inputs.shape))


def by_gate(inputs: Inputs) -> tuple[int, ...]:
    """[T, 3 D]"""
    return (inputs.total, 3 * inputs.shape.width)


def by_cell(inputs: Inputs) -> tuple[int, ...]:
    """[B, N, D]"""
    return (inputs.rows, inputs.longest, *trailing(inputs.shape))


def by_column(inputs: Inputs) -> tuple[int, ...]:
    """[T, N]"""
    return (inputs.total, inputs.shape.columns)


def by_matrix(inputs: Inputs) -> tuple[int, ...]:
    """[B, M, N]"""
    return (inputs.rows, inputs.shape.width, inputs.shape.columns)


def like_v(inputs: Inputs) -> tuple[int, ...]:
    """[T, H, V]"""
    return tuple(inputs["v"].shape)
