"""Blocks of one head, [rows, width] padded to powers of two: device helpers."""

from typing import Any

import helion.language as hl
import torch


def load_block(x: Any, position: Any, head: int, inside: Any, PADDED: int) -> Any:
    """x[position, head, :] with 0 outside, [rows, PADDED]; `inside` [rows], None where all are."""
    lane = hl.arange(PADDED)
    mask = in_block(lane, inside, x.size(2), PADDED)
    return hl.load(x, [position, head, lane], extra_mask=mask)


def store_block(x: Any, position: Any, head: int, inside: Any, values: Any, PADDED: int) -> None:
    """x[position, head, :] = values, where inside."""
    lane = hl.arange(PADDED)
    mask = in_block(lane, inside, x.size(2), PADDED)
    hl.store(x, [position, head, lane], values.to(x.dtype), extra_mask=mask)


def in_block(lane: Any, inside: Any, WIDTH: int, PADDED: int) -> Any:
    """The mask of such a block, None where it is full."""
    if PADDED == WIDTH:
        return None if inside is None else inside.unsqueeze(1)
    lanes = (lane < WIDTH).unsqueeze(0)
    return lanes if inside is None else inside.unsqueeze(1) & lanes


def in_32_bits(value: Any) -> Any:
    """An int32 tensor that has to do with arguments of the kernel, which Helion takes for int64.

    It says int32 of the result all the same, so that a cast to int32 alone would be left out.
    """
    return value.to(torch.int64).to(torch.int32)
