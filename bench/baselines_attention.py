"""What a user could pick instead of HSTU attention.

No library for the plain torch install computes it on ragged rows: there are the padded formula,
and `varlen_attn`, softmax attention on the same rows: other mathematics, the same products.
"""

import inspect
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.contenders import Call, call, compiled, in_form, padded
from bench.inputs import Inputs
from bench.oracles import keep_mask, position_index, time_bucket

_MOST_CELLS = 2**31


def _attend(
    q: Tensor, k: Tensor, v: Tensor, keep: Tensor, bias: Tensor | None, alpha: float, scale: Tensor
) -> Tensor:
    """[B, N, H, V] from padded q, k, v; `keep` [B|1, 1, N, N], `scale` [B|1, 1, N|1, 1]."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = alpha * (q @ k.mT)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    weights = torch.where(keep, functional.silu(scores), 0) * scale
    return (weights @ v).transpose(1, 2)


def _padded(inputs: Inputs, through_compile: bool) -> Call:
    extra = inputs.attention
    assert extra is not None
    longest, device = inputs.longest, inputs.device
    cells = inputs.rows * extra.options.heads * longest**2
    if cells > _MOST_CELLS:
        # Autograd keeps several such tensors, which would starve the others of memory.
        raise MemoryError(f"needs tensors of B H N N = {cells / 1e9:.1f}e9 elements")
    mask, targets = extra.options.mask, extra.num_targets
    if extra.options.plain:  # one mask for all rows: padding is dropped afterwards
        keep = keep_mask(torch.full((1,), longest, device=device), longest, mask, None)[:, None]
    else:
        keep = keep_mask(inputs.counts, longest, mask, targets)[:, None]
    dtype = inputs["q"].dtype
    if isinstance(extra.scale, Tensor):
        scale = inputs.pad(extra.scale.to(dtype))[:, None, :, None]
    else:
        scale = torch.full((1, 1, 1, 1), extra.scale, dtype=dtype, device=device)
    positions = position_index(longest, longest, device)
    buckets: Tensor | None = None
    if extra.timestamps is not None:
        times = inputs.pad(extra.timestamps)
        buckets = time_bucket(times, inputs.counts, extra.divisor, inputs["time_table"].shape[0])

    def formula(q: Tensor, k: Tensor, v: Tensor, *tables: Tensor) -> Tensor:
        bias: Tensor | None = None
        if tables:
            bias = tables[0][positions]
            if buckets is not None:
                bias = (bias + tables[1][buckets])[:, None]
        return _attend(q, k, v, keep, bias, extra.alpha, scale)

    run = compiled(inputs, formula) if through_compile else formula
    form = padded(inputs)
    return in_form(inputs, form, ["q", "k", "v"], lambda x: run(*x.values()), form)


def padded_attention(inputs: Inputs) -> Call:
    return _padded(inputs, through_compile=False)


def compiled_attention(inputs: Inputs) -> Call:
    return _padded(inputs, through_compile=True)


def varlen(inputs: Inputs) -> Call:
    """FlashAttention-2 in torch: causal softmax."""
    from torch.nn.attention.varlen import varlen_attn

    # The name of the option changed between the torch versions supported here.
    causal: dict[str, Any] = (
        {"is_causal": True}
        if "is_causal" in inspect.signature(varlen_attn).parameters
        else {"window_size": (-1, 0)}
    )
    bounds = inputs.offsets.to(torch.int32)
    longest = inputs.longest

    def run() -> Tensor:
        q, k, v = inputs.leaves
        out = varlen_attn(q, k, v, bounds, bounds, longest, longest, **causal)
        assert isinstance(out, Tensor)
        return out

    return call(inputs, run)


def fits_varlen(inputs: Inputs) -> bool:
    """It knows one head size, in half precision, and none of HSTU's masks and biases."""
    options = inputs.shape.attention
    assert options is not None
    return (
        options.plain
        and not options.per_query
        and options.value_features == inputs.shape.width
        and inputs.shape.width % 8 == 0
        and inputs["q"].dtype in (torch.bfloat16, torch.float16)
    )
