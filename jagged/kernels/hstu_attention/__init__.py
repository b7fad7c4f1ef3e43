"""HSTU attention on CUDA: arguments to launches.

The kernels are `forward.attend`, `backward.attend_dq`, `backward.attend_dkv` and
`bias_backward.attend_dbias`. They share the mask (`mask`) and the work list (`schedule`). Batches
of short rows have kernels of their own, `short.attend_short` and
`short_backward.attend_short_backward`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from jagged.kernels._device import limit_of
from jagged.kernels._elements import empty_like
from jagged.kernels.hstu_attention.backward import attend_dkv, attend_dq
from jagged.kernels.hstu_attention.bias import bucket_step
from jagged.kernels.hstu_attention.bias_backward import attend_dbias
from jagged.kernels.hstu_attention.forward import attend
from jagged.kernels.hstu_attention.schedule import work_list
from jagged.kernels.hstu_attention.short import Slots, attend_short
from jagged.kernels.hstu_attention.short_backward import attend_short_backward
from jagged.tuning.configs import Config, ConfigTable
from jagged.tuning.space import Space, powers

# The width is that of a head, the larger of D and V. BLOCK_Q and BLOCK_K are the queries and keys
# that a program takes at once; with HELD, the causal forward keeps its queries in registers, which
# a mask or a bias would take.
SPACE = [
    Space(form, warps=(4, 8), stages=(1, 2, 3), BLOCK_Q=powers(16, 128), BLOCK_K=powers(16, 128))
    for form in ("", "direct")
]
FORWARD = ConfigTable(__file__, "attend", SPACE)
DQ = ConfigTable(__file__, "attend_dq", SPACE)
DKV = ConfigTable(__file__, "attend_dkv", SPACE)
# Under a richer mask than causal, whose registers may cost a program a multiprocessor.
FORWARD_MASKED = ConfigTable(__file__, "attend_masked", SPACE)
# With a relative bias, which takes registers of its own.
FORWARD_BIASED = ConfigTable(__file__, "attend_biased", SPACE)
DQ_BIASED = ConfigTable(__file__, "attend_dq_biased", SPACE)
DKV_BIASED = ConfigTable(__file__, "attend_dkv_biased", SPACE)
DBIAS = ConfigTable(
    __file__,
    "attend_dbias",
    [
        Space(form, warps=(4, 8), stages=(1, 2, 3), BLOCK_Q=powers(16, 128))
        for form in ("", "direct")
    ],
)
# For batches of short rows, with the limits of what was measured: heads of WIDTH features of BYTES
# bytes, rows up to LONGEST, at least ROWS of them. One mean length for all, so that the width alone
# decides.
FORWARD_SHORT = ConfigTable(
    __file__,
    "attend_short",
    [Space("short", warps=(4, 8), stages=(1, 2, 3), BLOCK=powers(32, 128), BLOCK_K=powers(16, 64))],
)
SPACE_SHORT_BACKWARD = Space(
    "short",
    warps=(4, 8),
    stages=(1, 2, 3),
    BLOCK=powers(32, 128),
    BLOCK_K=powers(16, 64),
    BLOCK_Q=powers(16, 64),
)
BACKWARD_SHORT = ConfigTable(__file__, "attend_short_backward", [SPACE_SHORT_BACKWARD])
# Causal alone, without factors: a cap of registers that would spill under a richer mask.
BACKWARD_CAUSAL = ConfigTable(__file__, "attend_short_backward_causal", [SPACE_SHORT_BACKWARD])

WIDEST = 256  # features of a head: more do not fit into shared memory and registers
SPARE = 32  # programs of each head that write 0 into the capacity tail
# Further than any row reaches: what the kernels add to a few such numbers still has 32 bits.
FAR = 2**29


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    max_length: int,
    scale: float,
    scale_per_query: Tensor | None,
    alpha: float,
    window: int,
    contextual: int,
    min_full: int,
    num_targets: Tensor | None,
    position_table: Tensor | None,
    time_table: Tensor | None,
    timestamps: Tensor | None,
    bucket: str,
    divisor: float,
) -> Tensor:
    rows = offsets.shape[0] - 1
    if v.numel() == 0 or rows == 0 or max_length == 0:
        return v.new_zeros(v.shape)
    max_length = limit_of(max_length)
    window, contextual, min_full = min(window, FAR), min(contextual, FAR), min(min_full, FAR)
    q, k = _with_width(q, k)
    mask = _letters(window, contextual, min_full, num_targets)
    bucket = _bucket(position_table, time_table, bucket)
    widths = _padded(q.shape[2], v.shape[2])
    out = empty_like(v)
    short = None if bucket else _short(FORWARD_SHORT, q, v, rows, max_length)
    if short is not None:
        block, keys = short.constants["BLOCK"], short.constants["BLOCK_K"]
        slots, most, levels = Slots.of(q.shape[0], rows, max_length, block)
        attend_short(
            short, q, k, v, offsets, num_targets, scale_per_query, out, slots, most, max_length,
            alpha, scale, window, contextual, min_full, mask, *widths, block, keys, levels, SPARE,
        )  # fmt: skip
        return out
    table = FORWARD_BIASED if bucket else FORWARD_MASKED if mask else FORWARD
    config = table.pick(q, max(widths), rows)
    queries, keys = config.constants["BLOCK_Q"], config.constants["BLOCK_K"]
    work = _Programs(offsets, q.shape[0], max_length, {}).of(config, queries)
    held = config.constants.get("HELD", 0)
    attend(
        config, q, k, v, offsets, work.table, num_targets, scale_per_query, position_table,
        time_table, timestamps, out, work.slots, work.most, max_length, alpha, scale, window,
        contextual, min_full, bucket_step(bucket, divisor), mask, bucket, *widths, queries, keys,
        held, SPARE,
    )  # fmt: skip
    return out


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    max_length: int,
    scale: float,
    scale_per_query: Tensor | None,
    alpha: float,
    window: int,
    contextual: int,
    min_full: int,
    num_targets: Tensor | None,
    position_table: Tensor | None,
    time_table: Tensor | None,
    timestamps: Tensor | None,
    bucket: str,
    divisor: float,
    need_q: bool,
    need_kv: bool,
    need_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    rows = offsets.shape[0] - 1
    launched = grad.numel() > 0 and rows > 0 and max_length > 0
    max_length = limit_of(max_length)
    window, contextual, min_full = min(window, FAR), min(contextual, FAR), min(min_full, FAR)
    dq = _result(q, need_q, launched and q.numel() > 0)
    dk = _result(k, need_kv, launched and k.numel() > 0)
    dv = _result(v, need_kv, launched)
    # In float64, so that neither the number of summands nor their order shows.
    dposition, dtime = (
        torch.zeros(table.shape, dtype=torch.float64, device=table.device)
        if table is not None and need_bias
        else None
        for table in (position_table, time_table)
    )
    if launched:
        narrow, (q, k) = q.shape[2] == 0, _with_width(q, k)
        mask = _letters(window, contextual, min_full, num_targets)
        bucket = _bucket(position_table, time_table, bucket)
        widths = _padded(q.shape[2], v.shape[2])
        programs = _Programs(offsets, q.shape[0], max_length, {})
        tensors = grad, q, k, v, offsets
        extras = num_targets, scale_per_query, position_table, time_table, timestamps
        step = bucket_step(bucket, divisor)
        numbers = max_length, alpha, scale, window, contextual, min_full, step, mask, bucket
        both = need_q and need_kv and not bucket
        causal = mask == "" and scale_per_query is None
        table = BACKWARD_CAUSAL if causal else BACKWARD_SHORT
        short = _short(table, q, v, rows, max_length) if both else None
        if short is not None:
            sizes = tuple(short.constants[name] for name in ("BLOCK", "BLOCK_Q", "BLOCK_K"))
            slots, most, levels = Slots.of(q.shape[0], rows, max_length, sizes[0])
            attend_short_backward(
                short, *tensors, num_targets, scale_per_query, dq, dk, dv, slots, most, max_length,
                alpha, scale, window, contextual, min_full, mask, *widths, *sizes, levels, SPARE,
            )  # fmt: skip
            need_q = need_kv = False
        if need_q and not narrow:
            config = (DQ_BIASED if bucket else DQ).pick(q, max(widths), rows)
            queries, keys = config.constants["BLOCK_Q"], config.constants["BLOCK_K"]
            work = programs.of(config, queries)
            attend_dq(
                config, *tensors, work.table, *extras, dq, work.slots, work.most, *numbers,
                *widths, queries, keys, SPARE,
            )  # fmt: skip
        if need_kv:
            config = (DKV_BIASED if bucket else DKV).pick(q, max(widths), rows)
            queries, keys = config.constants["BLOCK_Q"], config.constants["BLOCK_K"]
            work = programs.of(config, keys)
            target = torch.empty_like(k) if narrow else dk
            attend_dkv(
                config, *tensors, work.table, *extras, target, dv, work.slots, work.most, *numbers,
                *widths, queries, keys, SPARE,
            )  # fmt: skip
        if dposition is not None or dtime is not None:
            config = DBIAS.pick(q, max(widths), rows)
            block = config.constants["BLOCK_Q"]
            work = programs.of(config, block)
            attend_dbias(
                config, *tensors, work.table, *extras, dposition, dtime, work.slots, work.most,
                *numbers, *widths, block, 2 if contextual else 1,
            )  # fmt: skip
    position_grad, time_grad = (
        v.new_empty(0) if table is None or total is None else total.to(table.dtype)
        for table, total in ((position_table, dposition), (time_table, dtime))
    )
    return dq, dk, dv, position_grad, time_grad


def _short(table: ConfigTable, q: Tensor, v: Tensor, rows: int, max_length: int) -> Config | None:
    """How the kernels for short rows run, None where they were not measured to be faster."""
    config = table.pick(q, max(q.shape[2], v.shape[2]), rows)
    limits = config.constants
    fits = (
        q.shape[2] == v.shape[2] == limits["WIDTH"]
        and q.element_size() <= limits["BYTES"]
        and max_length <= limits["LONGEST"]
        and rows >= limits["ROWS"]
    )
    return config if fits else None


class _Work(NamedTuple):
    """The programs of a head: `slots` of them, listed in `table` or `most` a row."""

    table: Tensor | None
    slots: int
    most: int


class _Programs(NamedTuple):
    """What the kernels of one call have in common; a work list is made once for each block size."""

    offsets: Tensor
    total: int
    max_length: int
    lists: dict[int, Tensor]

    def of(self, config: Config, block: int) -> _Work:
        """The programs that own blocks of `block` elements of every row.

        A work list costs a launch of about 5 us. It is left out where a row is one block, and with
        form "direct" where `most` programs a row are at most twice as many as it would list. For
        long rows it pays even where it saves no program: finding row and block by a division takes
        registers (172 against 142 in the forward at D 128).
        """
        rows = self.offsets.shape[0] - 1
        most = -(-self.max_length // block)
        listed = self.total // block + rows
        if most == 1 or (config.form == "direct" and rows * most <= 2 * listed):
            return _Work(None, rows * most, most)
        table = self.lists.get(block)
        if table is None:
            table = work_list(self.offsets, self.total, self.max_length, block)
            self.lists[block] = table
        return _Work(table, table.shape[0], most)


def _result(like: Tensor, needed: bool, written: bool) -> Tensor:
    """[0] where it is not needed; 0 where no kernel writes it."""
    if not needed:
        return like.new_empty(0)
    if not written:
        return like.new_zeros(like.shape)
    return empty_like(like)


def _letters(window: int, contextual: int, min_full: int, num_targets: Tensor | None) -> str:
    """MASK of the kernels, see `mask`."""
    windowed = ("wf" if min_full > 0 else "w") if window > 0 else ""
    targets = "" if num_targets is None else "t"
    return windowed + ("c" if contextual > 0 else "") + targets


def _bucket(position_table: Tensor | None, time_table: Tensor | None, bucket: str) -> str:
    """BUCKET of the kernels: "" without a bias."""
    return "" if position_table is None and time_table is None else bucket


def _padded(*widths: int) -> tuple[int, ...]:
    """The next powers of two that a product takes."""
    if max(widths) > WIDEST:
        raise ValueError(
            f"on a GPU q, k and v must have at most {WIDEST} features a head, got {max(widths)}: "
            "use more heads"
        )
    return tuple(max(16, 1 << (width - 1).bit_length()) for width in widths)


def _with_width(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """q and k, or, for D = 0, zeros of width 1: the same scores."""
    if q.shape[2] > 0:
        return q, k
    zeros = q.new_zeros((*q.shape[:2], 1))
    return zeros, zeros
