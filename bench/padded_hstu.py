"""HSTU layers as they are written without a library for ragged rows: padded, plain torch.

`PaddedHSTU` runs the layers of an `HSTUStack` on [B, N, E] with the stack's own parameters, so that
both compute the same function. The mask is added by `torch.where` on [B, H, N, N], and padding is
dropped at the end; torch.compile fuses what stands between the matrix products.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from jagged import JaggedTensor
from jagged.modules import HeadLayerNorm, HSTUStack, TokenLayerNorm
from jagged.modules.hstu import HSTULayer


class PaddedHSTU(nn.Module):
    """The layers of a stack, run on padded rows; takes and returns a jagged tensor.

    Knows causal layers without windows, context, targets and times: what a next-item model has.
    """

    def __init__(self, stack: HSTUStack) -> None:
        super().__init__()
        config = stack.config
        if config.window != 0 or config.contextual or config.min_full or config.time_buckets:
            raise ValueError(f"stack must be causal without windows and times, got {config}")
        self.stack = stack

    def forward(self, x: JaggedTensor) -> JaggedTensor:
        """Values [T, E] to the same."""
        longest = x.max_length
        if longest is None:
            raise ValueError("x must know its max_length: a padded batch is as long as its rows")
        place = torch.arange(longest, device=x.offsets.device)
        index = x.offsets[:-1, None] + place
        inside = index < x.offsets[1:, None]
        dense = x.values[torch.where(inside, index, 0)]
        dense = torch.where(inside[:, :, None], dense, 0)
        row = x.row_ids()
        slot = row * longest + torch.arange(row.shape[0], device=row.device) - x.offsets[row]
        causal = torch.ones(longest, longest, dtype=torch.bool, device=row.device).tril()
        for layer in self.stack.layers:
            assert isinstance(layer, HSTULayer)
            dense = padded_layer(layer, dense, causal)
        return x.with_values(dense.flatten(0, 1).index_select(0, slot))


def padded_layer(layer: HSTULayer, x: Tensor, keep: Tensor) -> Tensor:
    """[B, N, E] to the same.

    Padding comes after a row's elements, where a causal layer never looks, so one mask [N, N] does
    for all rows.
    """
    config = layer.config
    fused = layer.projection(_normalised(x, layer.norm))
    if config.activation == "uvqk":
        fused = functional.silu(fused)
    u, v, q, k = fused.split(layer.split_sizes, dim=2)
    if config.activation == "u":
        u = functional.silu(u)
    q, k, v = (part.unflatten(2, (config.num_heads, -1)).transpose(1, 2) for part in (q, k, v))
    alpha = 1.0 / math.sqrt(config.attention_dim) if config.alpha is None else config.alpha
    scores = alpha * (q @ k.mT)
    bias = layer.attention.bias
    if bias is not None and bias.position_table is not None:
        assert config.max_length is not None
        table = bias.position_table
        place = torch.arange(x.shape[1], device=x.device)
        scores = scores + table[config.max_length - 1 + place - place[:, None]]
    weights = torch.where(keep, functional.silu(scores), 0) * config.score_scale()
    attended = (weights.to(v.dtype) @ v).transpose(1, 2)
    norm = layer.output_norm
    if isinstance(norm, HeadLayerNorm):
        raise ValueError("layers with group_norm are not written here")
    flat = attended.flatten(2)
    gated = u * _normalised(flat, norm).to(flat.dtype)
    if config.concat_u:
        gated = torch.cat([u, flat, gated], dim=2)
    gated = functional.dropout(gated, config.dropout, layer.training)
    out: Tensor = x + layer.output(gated)
    return out


def _normalised(x: Tensor, norm: TokenLayerNorm) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)
