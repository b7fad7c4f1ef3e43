"""HSTU attention: dense scores for tiles of rows of similar length.

Rows are padded inside tiles only (`_hstu_plan`), and the queries of a long row are taken in blocks
that meet no key outside the range they see (`_hstu_mask`). Temporaries are the results of one
section, the inputs of one tile, and a few copies of one block of scores: around 100 MB, more only
where the inputs of one row alone are more. Reads the offsets on the host.
"""

import torch
from torch import Tensor
from torch.nn import functional

from jagged.eager._hstu_bias import Bias
from jagged.eager._hstu_mask import Shape
from jagged.eager._hstu_plan import Budget, Tile, sections
from jagged.eager._hstu_tile import Setting, products
from jagged.eager._rows import accumulation_dtype

_SECTION_BYTES = 2**26  # of the padded results of one section
_BLOCK_SCORES = 2**19  # elements of one block of scores: larger ones leave the caches


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
    out = v.new_zeros(v.shape)
    if out.numel() == 0 or offsets.shape[0] == 1:
        return out
    setting = _setting(
        v,
        v.shape[2],
        offsets,
        max_length,
        scale,
        scale_per_query,
        alpha,
        Shape(window, contextual, min_full),
        num_targets,
        Bias(position_table, time_table, timestamps, bucket, divisor),
    )
    for section in sections(setting.bounds, max_length, setting.budget):
        result = section.buffer(v.shape[2], v.new_empty(0, dtype=setting.dtype))
        for tile in section.tiles:
            _forward_tile(setting, tile, q, k, v, tile.of(result))
        section.write(result, out)
    return out


def _forward_tile(
    setting: Setting, tile: Tile, q: Tensor, k: Tensor, v: Tensor, out: Tensor
) -> None:
    """O of one tile [H, R, n, V]."""
    rows = setting.rows(tile)
    query, key, value = rows.gather(q), rows.gather(k), rows.gather(v)
    rows.start([out])
    for block, head_groups in rows.parts():
        factor, bias = rows.factor(block), rows.block_bias(block)
        for heads in head_groups:
            scores = products(
                query[:, block.queries, heads], key[:, block.keys, heads], setting.alpha
            )
            if bias is not None:
                bias.add_to(scores)
            weights = _rounded(functional.silu(scores, inplace=True).mul_(factor), v.dtype)
            rows.add_product(out[heads, :, block.queries], weights, value[:, block.keys, heads])


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
    outs = [
        x.new_zeros(x.shape) if needed else None
        for x, needed in ((q, need_q), (k, need_kv), (v, need_kv))
    ]
    tables = (position_table, time_table)
    table_sums = [
        torch.zeros_like(table, dtype=torch.float64) if table is not None and need_bias else None
        for table in tables
    ]
    if grad.numel() > 0 and offsets.shape[0] > 1:
        setting = _setting(
            v,
            2 * q.shape[2] + v.shape[2],
            offsets,
            max_length,
            scale,
            scale_per_query,
            alpha,
            Shape(window, contextual, min_full),
            num_targets,
            Bias(position_table, time_table, timestamps, bucket, divisor),
        )
        for section in sections(setting.bounds, max_length, setting.budget):
            like = v.new_empty(0, dtype=setting.dtype)
            results = [None if x is None else section.buffer(x.shape[2], like) for x in outs]
            for tile in section.tiles:
                sums = [None if x is None else tile.of(x) for x in results]
                _backward_tile(setting, tile, grad, q, k, v, sums, table_sums)
            for result, out in zip(results, outs, strict=True):
                if result is not None and out is not None:
                    section.write(result, out)
    dq, dk, dv = (v.new_zeros(0) if out is None else out for out in outs)
    dposition, dtime = (
        v.new_zeros(0) if table is None or total is None else total.to(table.dtype)
        for table, total in zip(tables, table_sums, strict=True)
    )
    return dq, dk, dv, dposition, dtime


def _backward_tile(
    setting: Setting,
    tile: Tile,
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sums: list[Tensor | None],
    table_sums: list[Tensor | None],
) -> None:
    """Into `sums` dq, dk, dv of one tile [H, R, n, D or V], into `table_sums` its part of those."""
    rows = setting.rows(tile)
    query, key, value = rows.gather(q), rows.gather(k), rows.gather(v)
    out_grad = rows.gather_gradient(grad)
    dq, dk, dv = sums
    rows.start([total for total in sums if total is not None])
    for block, head_groups in rows.parts():
        factor, bias = rows.factor(block), rows.block_bias(block)
        pair_grad = None
        for heads in head_groups:
            query_part, key_part = query[:, block.queries, heads], key[:, block.keys, heads]
            grad_part, value_part = out_grad[:, block.queries, heads], value[:, block.keys, heads]
            scores = products(query_part, key_part, setting.alpha)
            if bias is not None:
                bias.add_to(scores)
            if dv is not None:
                weights = _rounded(functional.silu(scores).mul_(factor), v.dtype)
                rows.add_product(dv[heads, :, block.keys], weights.mT, grad_part)
            dscores = products(grad_part, value_part).mul_(factor)
            torch.ops.aten.silu_backward.grad_input(dscores, scores, grad_input=dscores)
            if dk is not None:
                rows.add_product(dk[heads, :, block.keys], dscores.mT, query_part, setting.alpha)
            if dq is not None:
                rows.add_product(dq[heads, :, block.queries], dscores, key_part, setting.alpha)
            if bias is not None:
                of_heads = dscores.sum(0)
                pair_grad = of_heads if pair_grad is None else pair_grad.add_(of_heads)
        if bias is not None and pair_grad is not None:
            bias.add_gradient(pair_grad, *table_sums)


def _setting(
    v: Tensor,
    features: int,
    offsets: Tensor,
    max_length: int,
    scale: float,
    scale_per_query: Tensor | None,
    alpha: float,
    shape: Shape,
    num_targets: Tensor | None,
    bias: Bias,
) -> Setting:
    """The arguments in the form the tiles take them; `features` numbers are kept in a slot."""
    dtype = accumulation_dtype(v.dtype)
    bytes_per_slot = features * dtype.itemsize + 2 * torch.int64.itemsize
    # Offsets that validate() would refuse must not lead out of the tensors.
    bounds = offsets.to(torch.int64).clamp(0, v.shape[0]).cummax(0).values
    return Setting(
        bounds,
        max_length,
        scale,
        scale_per_query,
        alpha,
        shape,
        num_targets,
        bias.to(dtype) if bias.is_given() else None,
        Budget(v.shape[1], _SECTION_BYTES // bytes_per_slot, _BLOCK_SCORES),
        dtype,
    )


def _rounded(weights: Tensor, dtype: torch.dtype) -> Tensor:
    """P as the second product sees it: in the precision of v."""
    return weights.to(dtype).to(weights.dtype)
