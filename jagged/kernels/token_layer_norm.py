"""Layer norm of each element over its features."""

# Helion resolves `is not None` when it generates code, so what one such branch sets, others use.
# pyright: reportPossiblyUnboundVariable=false

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels._column_sums import column_sums
from jagged.kernels._device import full_block
from jagged.kernels._elements import empty_like
from jagged.tuning.configs import ConfigTable
from jagged.tuning.launch import launchable
from jagged.tuning.space import Space, powers

# Block sizes: elements.
FORWARD = ConfigTable(__file__, "_norm", [Space(blocks=[powers(1, 64)], warps=(1, 2, 4, 8, 16))])
BACKWARD = ConfigTable(
    __file__,
    "_norm_backward",
    [Space(warps=(2, 4, 8, 16), BLOCK=powers(1, 64), PROGRAMS=(528, 1056, 2112))],
)


def forward(
    values: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    offsets: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    total, width = values.shape
    out = empty_like(values)
    if out.numel() == 0:
        nothing = torch.zeros(total, dtype=torch.float32, device=values.device)
        return out, nothing, nothing.clone()
    mean = values.new_empty(total, dtype=torch.float32)
    rstd = torch.empty_like(mean)
    config = FORWARD.pick(values, width, total)
    _norm(config, values, weight, bias, offsets, out, mean, rstd, eps, full_block(width))
    return out, mean, rstd


def backward(
    grad: Tensor,
    values: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    has_bias: bool,
    offsets: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    total, width = values.shape
    kind = grad.dtype if weight is None else weight.dtype
    change = empty_like(grad)
    nothing = grad.new_empty(0, dtype=kind)
    if change.numel() == 0:
        zeros = grad.new_zeros(width, dtype=kind)
        return (
            change,
            nothing if weight is None else zeros,
            zeros.clone() if has_bias else nothing.clone(),
        )
    config = BACKWARD.pick(grad, width, total)
    block = config.constants["BLOCK"]
    programs = min(config.constants["PROGRAMS"], -(-total // block))
    shape = (programs, width)
    weight_sums = None if weight is None else grad.new_empty(shape, dtype=torch.float32)
    bias_sums = grad.new_empty(shape, dtype=torch.float32) if has_bias else None
    args = grad, values, mean, rstd, weight, offsets, change, weight_sums, bias_sums, programs
    _norm_backward(config, *args, full_block(width), block)
    return change, *column_sums(weight_sums, bias_sums, nothing)


@launchable()
def _norm(
    values: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    offsets: Tensor | None,
    out: Tensor,
    mean: Tensor,
    rstd: Tensor,
    eps: float,
    FULL: hl.constexpr,
) -> None:
    """values, out [T, D], weight, bias [D], offsets [B + 1], mean, rstd [T].

    A program owns a tile of elements. Those of the capacity tail get 0 everywhere.
    """
    width = hl.specialize(values.size(1))
    for tile, features in hl.tile([values.size(0), width], block_size=[None, FULL]):
        if offsets is not None:
            inside = tile.index < offsets[offsets.size(0) - 1]
            block = hl.load(values, [tile, features], extra_mask=inside[:, None])
        else:
            block = values[tile, features]
        apart = block.to(torch.float32)
        centre = apart.sum(1) / width
        apart = apart - centre[:, None]
        scale = torch.rsqrt((apart * apart).sum(1) / width + eps)
        apart = apart * scale[:, None]
        if weight is not None:
            apart = apart * weight[features].to(torch.float32)[None, :]
        if bias is not None:
            apart = apart + bias[features].to(torch.float32)[None, :]
        if offsets is not None:
            apart = torch.where(inside[:, None], apart, 0.0)
            scale = torch.where(inside, scale, 0.0)
        out[tile, features] = apart.to(out.dtype)
        mean[tile] = centre
        rstd[tile] = scale


@launchable()
def _norm_backward(
    grad: Tensor,
    values: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    offsets: Tensor | None,
    change: Tensor,
    weight_sums: Tensor | None,
    bias_sums: Tensor | None,
    programs: int,
    FULL: hl.constexpr,
    BLOCK: hl.constexpr,
) -> None:
    """grad, values, change [T, D], mean, rstd [T], weight [D], offsets [B + 1], sums [programs, D].

    A program owns every `programs`-th block of elements and its own sums for the gradients of
    weight and bias, which another launch adds up: deterministic. rstd is 0 in the capacity tail,
    and with it the gradient, once the tail's values are masked.
    """
    total = values.size(0)
    width = hl.specialize(values.size(1))
    for tile_program, features in hl.tile([programs, width], block_size=[1, FULL]):
        program = tile_program.begin
        if weight is not None:
            gain = weight[features].to(torch.float32)
        along = hl.zeros([BLOCK, features], dtype=torch.float32)
        level = hl.zeros([BLOCK, features], dtype=torch.float32)
        blocks = (total + BLOCK - 1) // BLOCK
        for turn in hl.grid((blocks - program + programs - 1) // programs):
            index = (turn * programs + program) * BLOCK + hl.arange(BLOCK)
            kept = index < total
            if offsets is not None:
                kept = index < offsets[offsets.size(0) - 1]
            inside = kept[:, None]
            block = hl.load(grad, [index, features], extra_mask=inside).to(torch.float32)
            normed = hl.load(values, [index, features], extra_mask=inside).to(torch.float32)
            scale = hl.load(rstd, [index], extra_mask=kept)[:, None]
            centre = hl.load(mean, [index], extra_mask=kept)[:, None]
            normed = (normed - centre) * scale
            if weight_sums is not None:
                along = along + block * normed
            if bias_sums is not None:
                level = level + block
            if weight is not None:
                block = block * gain[None, :]
            average = block.sum(1) / width
            slope = (block * normed).sum(1) / width
            block = (block - average[:, None] - normed * slope[:, None]) * scale
            within = (index < total)[:, None]
            hl.store(change, [index, features], block.to(change.dtype), extra_mask=within)
        if weight_sums is not None:
            weight_sums[program, features] = along.sum(0)
        if bias_sums is not None:
            bias_sums[program, features] = level.sum(0)
