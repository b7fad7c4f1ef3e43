"""Sums of the columns of [programs, D]: what each program of a norm's backward left of the
gradients of weight and bias. Both in one launch, in their dtype, always added in the same order."""

# Helion resolves `is not None` when it generates code.
# pyright: reportPossiblyUnboundVariable=false

import helion.language as hl
import torch
from torch import Tensor

from jagged.tuning.configs import Config
from jagged.tuning.launch import launchable

BLOCK = 512
CONFIG = Config({"block_sizes": [8], "num_warps": 8})


def column_sums(
    weight_sums: Tensor | None, bias_sums: Tensor | None, nothing: Tensor
) -> tuple[Tensor, Tensor]:
    """The sums of both, [D], with `nothing` (of their dtype) in place of what is None."""
    weight = nothing if weight_sums is None else nothing.new_empty(weight_sums.shape[1])
    bias = nothing.new_empty(0) if bias_sums is None else nothing.new_empty(bias_sums.shape[1])
    if weight_sums is not None:
        _add_columns(
            CONFIG, weight_sums, bias_sums, weight, None if bias_sums is None else bias, BLOCK
        )
    elif bias_sums is not None:
        _add_columns(CONFIG, bias_sums, None, bias, None, BLOCK)
    return weight, bias


@launchable()
def _add_columns(
    first: Tensor,
    second: Tensor | None,
    first_out: Tensor,
    second_out: Tensor | None,
    BLOCK: hl.constexpr,
) -> None:
    """first, second [P, D] to first_out, second_out [D]."""
    programs = first.size(0)
    width = hl.specialize(first.size(1))
    for features in hl.tile(width):
        sums = hl.zeros([BLOCK, features], dtype=torch.float32)
        others = hl.zeros([BLOCK, features], dtype=torch.float32)
        for i in hl.grid((programs + BLOCK - 1) // BLOCK):
            index = i * BLOCK + hl.arange(BLOCK)
            inside = (index < programs)[:, None]
            sums = sums + hl.load(first, [index, features], extra_mask=inside)
            if second is not None:
                others = others + hl.load(second, [index, features], extra_mask=inside)
        first_out[features] = sums.sum(0).to(first_out.dtype)
        if second_out is not None:
            second_out[features] = others.sum(0).to(second_out.dtype)
