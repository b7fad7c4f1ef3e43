"""Layer norm over a whole row: mean and variance of its elements and features.

The first block of a row is normed exactly; each further one is taken relative to the mean so far,
which is as exact as two passes (what is subtracted from its squares is at most a part of them) and
reads the row once. One more pass writes. Forms as in `softmax`.
"""

# Helion resolves `is not None` when it generates code, so what one such branch sets, others use.
# pyright: reportPossiblyUnboundVariable=false

import helion.language as hl
import torch
from torch import Tensor

from jagged.kernels import layer_norm_configs
from jagged.kernels._device import full_block, span, tail_parts, whole_blocks
from jagged.kernels.layer_norm_backward import norm_row_backward, norm_rows_backward
from jagged.tuning.configs import ConfigTable
from jagged.tuning.launch import launchable

FORWARD = ConfigTable(layer_norm_configs.FORWARD)
BACKWARD = ConfigTable(layer_norm_configs.BACKWARD)


def forward(
    values: Tensor, offsets: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows = offsets.shape[0] - 1
    total, width = values.shape
    out = torch.empty((total, width), dtype=values.dtype, device=values.device)
    if out.numel() == 0:
        mean = torch.zeros(rows, dtype=torch.float32, device=values.device)
        return out, mean, torch.full_like(mean, eps).rsqrt_()
    mean = torch.empty(rows, dtype=torch.float32, device=values.device)
    rstd = torch.empty(rows, dtype=torch.float32, device=values.device)
    config = FORWARD.pick(values, width, rows)
    kernel = _norm_row if config.form == "row" else _norm_rows
    args = values, offsets, weight, bias, out, mean, rstd, eps, tail_parts(total), full_block(width)
    kernel(config, *args, config.constants["BLOCK"])
    return out, mean, rstd


def backward(
    grad: Tensor,
    values: Tensor,
    offsets: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    rows = offsets.shape[0] - 1
    total, width = values.shape
    kind = grad.dtype if weight is None else weight.dtype
    change = torch.empty((total, width), dtype=grad.dtype, device=grad.device)
    nothing = grad.new_empty(0, dtype=kind)
    if change.numel() == 0:
        zeros = grad.new_zeros(width, dtype=kind)
        return change, nothing if weight is None else zeros, zeros.clone() if has_bias else nothing
    config = BACKWARD.pick(grad, width, rows)
    kernel = norm_row_backward if config.form == "row" else norm_rows_backward
    parts = tail_parts(total)
    shape = (-(-(rows + parts) // config.constants.get("ROWS", 1)), width)
    weight_sums = None if weight is None else _float32(shape, grad)
    bias_sums = _float32(shape, grad) if has_bias else None
    args = (
        grad,
        values,
        offsets,
        mean,
        rstd,
        weight,
        change,
        weight_sums,
        bias_sums,
        parts,
        full_block(width),
    )
    kernel(config, *args, *config.constants.values())
    return (
        change,
        nothing if weight_sums is None else weight_sums.sum(0).to(kind),
        nothing if bias_sums is None else bias_sums.sum(0).to(kind),
    )


def _float32(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)


@launchable()
def _norm_row(
    values: Tensor,
    offsets: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    out: Tensor,
    mean: Tensor,
    rstd: Tensor,
    eps: float,
    parts: int,
    FULL: hl.constexpr,
    BLOCK: hl.constexpr,
) -> None:
    """values, out [T, D], offsets [B + 1], weight, bias [D], mean, rstd [B]."""
    rows = offsets.size(0) - 1
    total = values.size(0)
    width = hl.specialize(values.size(1))
    for tile_row, features in hl.tile([rows + parts, width], block_size=[1, FULL]):
        row = tile_row.begin
        begin, length, is_row = span(offsets, row, parts, total)
        kept = torch.where(is_row, length, 0)
        whole = whole_blocks(kept, BLOCK)
        last = whole * BLOCK + hl.arange(BLOCK)
        inside = (last < kept)[:, None]
        ending = hl.load(values, [begin + last, features], extra_mask=inside).to(torch.float32)
        count = torch.where(kept > 0, (kept - whole * BLOCK) * width, 1).to(torch.float32)
        centre = ending.sum(1).sum(0) / count
        apart = torch.where(inside, ending - centre, 0.0)
        squares = (apart * apart).sum(1).sum(0)
        for i in hl.grid(whole):
            index = begin + i * BLOCK + hl.arange(BLOCK)
            shifted = values[index, features].to(torch.float32) - centre
            first = shifted.sum(1).sum(0)
            second = (shifted * shifted).sum(1).sum(0)
            count = count + BLOCK * width
            move = first / count
            centre = centre + move
            squares = squares + (second - first * move)
        scale = torch.rsqrt(squares / count + eps)
        if weight is not None:
            gain = weight[features].to(torch.float32)
        if bias is not None:
            level = bias[features].to(torch.float32)
        for j in hl.grid(whole):
            index_out = begin + j * BLOCK + hl.arange(BLOCK)
            again = (values[index_out, features].to(torch.float32) - centre) * scale
            if weight is not None:
                again = again * gain[None, :]
            if bias is not None:
                again = again + level[None, :]
            out[index_out, features] = again.to(out.dtype)
        ending = (ending - centre) * scale
        if weight is not None:
            ending = ending * gain[None, :]
        if bias is not None:
            ending = ending + level[None, :]
        within = (last < length)[:, None]
        written = torch.where(inside, ending, 0.0).to(out.dtype)
        hl.store(out, [begin + last, features], written, extra_mask=within)
        for cut in hl.tile(begin + (whole + 1) * BLOCK, begin + length):
            out[cut, features] = 0.0
        hl.store(mean, [row], centre, extra_mask=is_row)
        hl.store(rstd, [row], scale, extra_mask=is_row)


@launchable()
def _norm_rows(
    values: Tensor,
    offsets: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    out: Tensor,
    mean: Tensor,
    rstd: Tensor,
    eps: float,
    parts: int,
    FULL: hl.constexpr,
    BLOCK: hl.constexpr,
) -> None:
    """As `_norm_row`, for a tile of rows; BLOCK elements a row are read once."""
    rows = offsets.size(0) - 1
    total = values.size(0)
    width = hl.specialize(values.size(1))
    for tile_row, features in hl.tile([rows + parts, width], block_size=[None, FULL]):
        begin, length, is_row = span(offsets, tile_row.index, parts, total)
        kept = torch.where(is_row, length, 0)
        count = torch.where(kept > 0, kept * width, 1).to(torch.float32)
        if weight is not None:
            gain = weight[features].to(torch.float32)
        if bias is not None:
            level = bias[features].to(torch.float32)
        if length.amax() <= BLOCK:
            place = hl.arange(BLOCK)
            inside = (place[None, :] < kept[:, None])[:, :, None]
            index = begin[:, None] + place[None, :]
            block = hl.load(values, [index, features], extra_mask=inside).to(torch.float32)
            centre = block.sum(2).sum(1) / count
            apart = torch.where(inside, block - centre[:, None, None], 0.0)
            scale = torch.rsqrt((apart * apart).sum(2).sum(1) / count + eps)
            apart = apart * scale[:, None, None]
            if weight is not None:
                apart = apart * gain[None, None, :]
            if bias is not None:
                apart = apart + level[None, None, :]
            within = (place[None, :] < length[:, None])[:, :, None]
            written = torch.where(inside, apart, 0.0).to(out.dtype)
            hl.store(out, [index, features], written, extra_mask=within)
            hl.store(mean, [tile_row.index], centre, extra_mask=is_row)
            hl.store(rstd, [tile_row.index], scale, extra_mask=is_row)
        else:
            sums = hl.zeros([tile_row], dtype=torch.float32)
            squares = hl.zeros([tile_row], dtype=torch.float32)
            for read in hl.jagged_tile(kept):
                part = values[begin[:, None] + read.index[None, :], features].to(torch.float32)
                sums = sums + part.sum(2).sum(1)
            middle = sums / count
            for look in hl.jagged_tile(kept):
                off = values[begin[:, None] + look.index[None, :], features].to(torch.float32)
                off = off - middle[:, None, None]
                squares = squares + (off * off).sum(2).sum(1)
            spread = torch.rsqrt(squares / count + eps)
            for write in hl.jagged_tile(length):
                index_write = begin[:, None] + write.index[None, :]
                again = values[index_write, features].to(torch.float32) - middle[:, None, None]
                again = again * spread[:, None, None]
                if weight is not None:
                    again = again * gain[None, None, :]
                if bias is not None:
                    again = again + level[None, None, :]
                again = torch.where(is_row[:, None, None], again, 0.0)
                out[index_write, features] = again.to(out.dtype)
            hl.store(mean, [tile_row.index], middle, extra_mask=is_row)
            hl.store(rstd, [tile_row.index], spread, extra_mask=is_row)
