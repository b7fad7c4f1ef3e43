"""The next-item model as it is written without a library for ragged rows: padded, plain torch.

`PaddedModel` computes the loss of a `NextItemModel` with the model's own parameters, its layers on
[B, N, E]. Scores are masked by `torch.where` on [B, H, N, N]; torch.compile fuses what stands
between the matrix products. Padding comes after a row's elements, where a causal layer never looks,
so it may hold any finite number, and one mask [N, N] does for all rows. The loss is taken on the
real elements alone.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.recommender.model import NextItemModel
from jagged import JaggedTensor
from jagged.modules import HeadLayerNorm, HSTUStack, TokenLayerNorm
from jagged.modules.hstu import HSTULayer

FORMS = ("gather", "copy", "ids")


class PaddedModel(nn.Module):
    """A next-item model whose layers run on padded rows, made in one of three ways (`FORMS`).

    - `gather`: vectors of the elements are gathered; the backward pass scatters.
    - `copy`: vectors of the elements are copied to their places in zeros; the backward pass
      gathers.
    - `ids`: items are padded before the lookup, which then is [B, N, E] from the start.

    Knows causal layers without windows, context, targets and times, and no dropout before them.

    Raises:
        ValueError: the model or the form is another.
    """

    def __init__(self, model: NextItemModel, form: str) -> None:
        super().__init__()
        if form not in FORMS:
            raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
        settings = model.settings
        if settings.input_dropout or settings.item_dropout or settings.repeat_bias:
            raise ValueError(f"model must have no input dropout and no repeat bias, got {settings}")
        if not isinstance(model.encoder, HSTUStack):
            raise ValueError(f"model must have an HSTUStack, got {type(model.encoder).__name__}")
        check_stack(model.encoder)
        self.model = model
        self.form = form

    def forward(self, batch: JaggedTensor, negatives: Tensor) -> Tensor:
        """The loss, as of `NextItemModel`; the batch has no capacity tail."""
        targets, shares = self.model.targets(batch)
        return self.model.loss(self.states(batch), targets, shares, negatives)

    def states(self, items: JaggedTensor) -> Tensor:
        """[T, E] float32, of norm 1."""
        stack = self.model.encoder
        assert isinstance(stack, HSTUStack)
        padded = self.form == "ids"
        looked_up = self.model.items(pad(items, "gather") if padded else items.values)
        scaled = looked_up * math.sqrt(self.model.settings.width)
        dense = scaled if padded else pad(items.with_values(scaled), self.form)
        out = unpad(padded_layers(stack, dense), items)
        return functional.normalize(out.float(), dim=-1)


def pad(x: JaggedTensor, form: str) -> Tensor:
    """[B, N, ...]: the rows of x, `max_length` N long; behind them stands any finite number.

    In `gather` that is what follows in x: were it one element for all of the padding, the backward
    pass would add a gradient to it hundreds of thousands of times, one after the other.
    """
    longest = _longest(x)
    if form == "copy":
        zeros = x.values.new_zeros(len(x) * longest, *x.values.shape[1:])
        copied = zeros.index_copy(0, places(x), x.values)
        return copied.reshape(len(x), longest, *x.values.shape[1:])
    index = x.offsets[:-1, None] + torch.arange(longest, device=x.offsets.device)
    return x.values[index.clamp(max=x.values.shape[0] - 1)]


def unpad(dense: Tensor, x: JaggedTensor) -> Tensor:
    """[T, ...]: the elements of padded rows [B, N, ...] that x has."""
    return dense.flatten(0, 1).index_select(0, places(x))


def places(x: JaggedTensor) -> Tensor:
    """[T]: where each element of x stands among the B * N of its padded rows."""
    row = x.row_ids()
    index = torch.arange(row.shape[0], device=row.device)
    return row * _longest(x) + index - x.offsets[row]


def _longest(x: JaggedTensor) -> int:
    if x.max_length is None:
        raise ValueError("x must know its max_length: a padded batch is as long as its rows")
    return x.max_length


def check_stack(stack: HSTUStack) -> None:
    """Raise `ValueError` for layers that `padded_layers` does not know."""
    config = stack.config
    if config.window != 0 or config.contextual or config.min_full or config.time_buckets:
        raise ValueError(f"stack must be causal without windows and times, got {config}")
    if config.group_norm:
        raise ValueError(f"stack must have no group_norm, got {config}")


def padded_layers(stack: HSTUStack, dense: Tensor) -> Tensor:
    """[B, N, E] to the same."""
    longest = dense.shape[1]
    causal = torch.ones(longest, longest, dtype=torch.bool, device=dense.device).tril()
    for layer in stack.layers:
        assert isinstance(layer, HSTULayer)
        dense = _padded_layer(layer, dense, causal)
    return dense


def _padded_layer(layer: HSTULayer, x: Tensor, keep: Tensor) -> Tensor:
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
    assert not isinstance(norm, HeadLayerNorm)
    flat = attended.flatten(2)
    gated = u * _normalised(flat, norm).to(flat.dtype)
    if config.concat_u:
        gated = torch.cat([u, flat, gated], dim=2)
    gated = functional.dropout(gated, config.dropout, layer.training)
    out: Tensor = x + layer.output(gated)
    return out


def _normalised(x: Tensor, norm: TokenLayerNorm) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)
