"""The HSTU layer written plainly: padded, dense, float64, one formula after the other.

What `HSTULayer` is compared with. It shares no code with the library: mask, bias and norms are
written out here from the paper (Zhai et al., arXiv 2402.17152, eq. 1-3) and the published layers.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad, silu

from jagged.modules import HSTUConfig


def kept(config: HSTUConfig, length: int, targets: int | None) -> Tensor:
    """[length, length]: 1 where the query (first) sees the key."""
    assert isinstance(config.window, int)
    context, window, full = config.contextual, config.window, config.min_full
    end = length - max(context - 1, 0) - (targets or 0)

    def identity(position: int) -> int:
        shifted = max(position - context + 1, 0) if context > 0 else position
        return shifted if targets is None else min(shifted, end)

    mask = torch.zeros(length, length, dtype=torch.float64)
    for query in range(length):
        for key in range(length):
            a, b = identity(query), identity(key)
            sees = query == key or a > b
            if window > 0:
                sees = sees and (a - b <= window or (full > 0 and a >= end - full))
            if context > 0:
                sees = sees or (a == 0 and b < end)
            mask[query, key] = float(sees)
    return mask


def bias_of(
    config: HSTUConfig, parameters: Mapping[str, Tensor], times: Tensor | None, length: int
) -> Tensor:
    """[length, length]: what is added to the scores."""
    bias = torch.zeros(length, length, dtype=torch.float64)
    position = torch.arange(length)
    if config.position_bias:
        assert config.max_length is not None
        table = parameters["attention.bias.position_table"]
        bias = bias + table[config.max_length - 1 + position[None, :] - position[:, None]]
    if config.time_buckets > 0 and length > 0:
        assert times is not None
        table = parameters["attention.bias.time_table"]
        following = torch.cat([times[1:], times[-1:]])
        apart = (following[:, None] - times[None, :]).abs().clamp(min=1).double()
        scaled = apart.log() if config.time_bucket == "log" else apart.sqrt()
        bucket = (scaled / config.time_divisor).long().clamp(max=config.time_buckets)
        bias = bias + table[bucket]
    return bias


def normalise(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """Layer norm over the last dimension."""
    centred = x - x.mean(-1, keepdim=True)
    out = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def dense_hstu(
    config: HSTUConfig,
    parameters: Mapping[str, Tensor],
    rows: Sequence[Tensor],
    targets: Sequence[int] | None = None,
    times: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """One layer on rows [n_i, E]; the result as rows again."""
    heads, width = config.num_heads, config.num_heads * config.hidden_dim
    lengths = [row.shape[0] for row in rows]
    longest = max(lengths)
    x = torch.stack([pad(row, (0, 0, 0, longest - row.shape[0])) for row in rows])  # [B, n, E]
    masks, biases = [], []
    for index, length in enumerate(lengths):
        rest = longest - length
        mask = kept(config, length, None if targets is None else targets[index])
        bias = bias_of(config, parameters, None if times is None else times[index], length)
        masks.append(pad(mask, (0, rest, 0, rest)))
        biases.append(pad(bias, (0, rest, 0, rest)))
    mask, bias = torch.stack(masks)[:, None], torch.stack(biases)[:, None]  # [B, 1, n, n]

    normed = normalise(x, parameters.get("norm.weight"), parameters.get("norm.bias"), config.eps)
    projected = normed @ parameters["projection.weight"].T
    if config.projection_bias:
        projected = projected + parameters["projection.bias"]
    u, v, q, k = projected.split(
        [width, width, heads * config.attention_dim, heads * config.attention_dim], dim=-1
    )
    u = silu(u)
    if config.activation == "uvqk":
        v, q, k = silu(v), silu(q), silu(k)
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (q, k, v))

    alpha = 1 / math.sqrt(config.attention_dim) if config.alpha is None else config.alpha
    assert config.max_length is not None
    scale = 1 / config.max_length if config.scale is None else config.scale
    scores = alpha * q @ k.transpose(-1, -2) + bias  # [B, H, n, n]
    attended = ((silu(scores) * mask * scale) @ v).transpose(1, 2)  # [B, n, H, V]

    weight, shift = parameters.get("output_norm.weight"), parameters.get("output_norm.bias")
    if config.group_norm:
        weight = None if weight is None else weight[:, None]
        shift = None if shift is None else shift[:, None]
        gated = u * normalise(attended, weight, shift, config.eps).flatten(-2)
    else:
        gated = u * normalise(attended.flatten(-2), weight, shift, config.eps)
    if config.concat_u:
        gated = torch.cat([u, attended.flatten(-2), gated], dim=-1)
    out = x + gated @ parameters["output.weight"].T
    if config.output_bias:
        out = out + parameters["output.bias"]
    return [out[index, :length] for index, length in enumerate(lengths)]
