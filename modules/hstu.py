"""HSTU: the layer around the attention and a stack of layers, for both published variants."""

from typing import Any

import torch
from torch import Tensor, nn

from jagged import ops
from jagged.layout import JaggedTensor
from jagged.modules._rows import check_jagged, check_values, is_element, longest, zero_tail
from jagged.modules.attention import HSTUAttention
from jagged.modules.hstu_config import HSTUConfig
from jagged.modules.norm import HeadLayerNorm, TokenLayerNorm


class HSTULayer(nn.Module):
    """One HSTU layer: projection, pointwise attention, gating, output, residual::

        U, V, Q, K = split(LN(x) W + b)                        then SiLU on U, or on all four
        A = HSTUAttention(Q, K, V)
        y = U * LN(A)              or [U, A, U * LN(A)]        with concat_u
        out = x + dropout(y) W_o + b_o

    Zhai et al., arXiv 2402.17152, eq. 1-3; the two published variants are
    `HSTUConfig.research(...)` and `HSTUConfig.production(...)`. The four projections are one
    matrix product, and q, k, v and u are strided views of its result.

    Args:
        config: of one layer (`HSTUConfig.layer(index)` for one of a stack with several windows).

    Takes and returns a jagged tensor with values [T, E]. Parameters `norm.{weight, bias}`,
    `projection.{weight, bias}`, `attention.bias.{position_table, time_table}`,
    `output_norm.{weight, bias}`, `output.{weight, bias}`, as far as the config has them. Under
    autocast the products and the attention run in its dtype, the residual sum in that of x.

    `norm`, `attention` and `output_norm` are read here, not called: forward hooks and `fully_shard`
    go on the layer or on its two `nn.Linear`s.
    """

    def __init__(
        self,
        config: HSTUConfig,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        heads, width = config.num_heads, config.num_heads * config.hidden_dim
        affine = config.norm_affine
        place: Any = {"device": device, "dtype": dtype}
        self.split_sizes = [
            width,
            width,
            heads * config.attention_dim,
            heads * config.attention_dim,
        ]
        self.norm = TokenLayerNorm(config.embedding_dim, config.eps, affine, **place)
        self.projection = nn.Linear(
            config.embedding_dim, sum(self.split_sizes), config.projection_bias, **place
        )
        self.attention = HSTUAttention(config, **place)
        self.output_norm: TokenLayerNorm | HeadLayerNorm = (
            HeadLayerNorm(heads, config.eps, affine, **place)
            if config.group_norm
            else TokenLayerNorm(width, config.eps, affine, **place)
        )
        self.output = nn.Linear(
            width * (3 if config.concat_u else 1),
            config.embedding_dim,
            config.output_bias,
            **place,
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights Xavier uniform (the projection N(0, projection_std) where the config has one),
        its bias 0, the output's bias as in `torch.nn.Linear`, norms 1 and 0, tables N(0, 0.02)."""
        self.norm.reset_parameters()
        self.attention.reset_parameters()
        self.output_norm.reset_parameters()
        self.output.reset_parameters()
        nn.init.xavier_uniform_(self.output.weight)
        if self.config.projection_std is None:
            nn.init.xavier_uniform_(self.projection.weight)
        else:
            nn.init.normal_(self.projection.weight, std=self.config.projection_std)
        if self.config.projection_bias:
            nn.init.zeros_(self.projection.bias)

    def forward(
        self,
        x: JaggedTensor,
        num_targets: Tensor | None = None,
        timestamps: Tensor | None = None,
        clear_tail: bool = True,
    ) -> JaggedTensor:
        """Run the layer.

        Args:
            x: values [T, E].
            num_targets: [B] integers: the last elements of each row, which see the history and
                themselves and nobody else sees. None for no targets.
            timestamps: [T] int64, where the config has `time_buckets`.
            clear_tail: leave 0 in the capacity tail. A stack has this done by its last layer alone:
                no layer reads the tail of x but for adding to it, and where the last one's is
                cleared, the gradients there are 0 in all of them.
        """
        check_jagged("x", x)
        config, total = self.config, x.values.shape[0]
        check_values(x.values, (total, config.embedding_dim), "[T, embedding_dim]")
        # The norm leaves 0 in the tail, so that nothing below it meets what the tail of x held.
        normed = self.norm.normalise(x.values, x.offsets)
        u, q, k, v = self.project(normed)
        attended = self.attention.attend(
            q,
            k,
            v,
            x.offsets,
            max_length=longest(x, config.max_length, "HSTUConfig(max_length=...)"),
            num_targets=num_targets,
            timestamps=timestamps,
        )
        return self.residual(x, self.output(self.gate(attended, u, x.offsets)), clear_tail)

    def project(self, normed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """u [T, H V], q and k [T, H, D], v [T, H, V] of the normalised elements [T, E].

        SiLU of u alone is left to `gate`, so that u stays a view of the projection.
        """
        heads = self.config.num_heads
        fused = self.projection(normed)
        if self.config.activation == "uvqk":
            fused = nn.functional.silu(fused)
        u, v, q, k = fused.split(self.split_sizes, dim=1)
        q, k, v = (part.unflatten(1, (heads, -1)) for part in (q, k, v))
        return u, q, k, v

    def gate(self, attended: Tensor, u: Tensor, offsets: Tensor) -> Tensor:
        """What the output projection reads, [T, H V] or [T, 3 H V]: `dropout(u * LN(attended))`, or
        `dropout([u, attended, u * LN(attended)])`, of attended [T, H, V] and u [T, H V] of
        `project`. 0 in the capacity tail."""
        config = self.config
        if config.group_norm:
            u = u.view(-1, config.num_heads, config.hidden_dim)
        else:
            attended = attended.flatten(1)
        return ops.norm_mul_dropout(
            attended,
            u,
            self.output_norm.weight,
            self.output_norm.bias,
            config.eps,
            silu=config.activation == "u",
            concat=config.concat_u,
            dropout=config.dropout if self.training else 0.0,
            offsets=offsets,
        )

    def residual(self, x: JaggedTensor, out: Tensor, clear_tail: bool = True) -> JaggedTensor:
        """The sum of x and the output projection [T, E]; 0 in the capacity tail, if told so."""
        out = x.values + out
        return x.with_values(zero_tail(out, is_element(x)) if clear_tail else out)

    def extra_repr(self) -> str:
        config = self.config
        return (
            f"{config.embedding_dim}, num_heads={config.num_heads}, "
            f"attention_dim={config.attention_dim}, hidden_dim={config.hidden_dim}, "
            f"activation={config.activation!r}, concat_u={config.concat_u}, "
            f"group_norm={config.group_norm}, dropout={config.dropout:g}"
        )


class HSTUStack(nn.Module):
    """`config.num_layers` HSTU layers, one after the other; each with its own window where
    `config.window` is a tuple.

    Takes and returns a jagged tensor with values [T, E]. Parameters are those of `HSTULayer` below
    `layers.0`, `layers.1`, ...

    Example:
        >>> config = jagged.modules.HSTUConfig.research(
        ...     embedding_dim=50, num_heads=2, attention_dim=25, hidden_dim=25, max_length=211,
        ...     num_layers=8)
        >>> x = jagged.JaggedTensor.from_rows([torch.randn(3, 50), torch.randn(5, 50)])
        >>> y = jagged.modules.HSTUStack(config)(x, timestamps=torch.arange(8))
    """

    def __init__(
        self,
        config: HSTUConfig,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(
            HSTULayer(config.layer(index), device=device, dtype=dtype)
            for index in range(config.num_layers)
        )

    def reset_parameters(self) -> None:
        """Initialise all layers."""
        for layer in self.layers:
            assert isinstance(layer, HSTULayer)
            layer.reset_parameters()

    def forward(
        self,
        x: JaggedTensor,
        num_targets: Tensor | None = None,
        timestamps: Tensor | None = None,
    ) -> JaggedTensor:
        """Run all layers; the arguments are those of `HSTULayer.forward`."""
        for index, layer in enumerate(self.layers, 1):
            x = layer(x, num_targets, timestamps, clear_tail=index == len(self.layers))
        return x
