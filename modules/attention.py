"""The attention of HSTU as a layer: what the config says, on jagged q, k and v."""

import torch
from torch import Tensor, nn

from jagged import ops
from jagged.layout import JaggedTensor
from jagged.modules._rows import check_jagged, check_same_rows, longest, to_autocast
from jagged.modules.bias import RelativeBias
from jagged.modules.hstu_config import HSTUConfig


class HSTUAttention(nn.Module):
    """Pointwise attention with SiLU in place of softmax, over the rows of a jagged tensor::

        S = alpha q kᵀ + bias        O = (silu(S) * M * scale) v

    M is `jagged.HSTUMask`; see `jagged.ops.hstu_attention`. Zhai et al., arXiv 2402.17152, eq. 2.
    The only parameters are the tables of the relative bias, where the config asks for it.

    Args:
        config: of one layer. Used are the dims, `max_length`, `scale`, `alpha`, the mask and the
            bias.

    Shapes: q, k [T, H, D], v [T, H, V] to [T, H, V]. Under autocast q, k and v are cast to its
    dtype.
    """

    bias: RelativeBias | None

    def __init__(
        self,
        config: HSTUConfig,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.mask = config.mask()
        self.scale = config.score_scale()
        self.bias = None
        if config.position_bias or config.time_buckets > 0:
            self.bias = RelativeBias(
                config.max_length,
                config.position_bias,
                config.time_buckets,
                config.time_bucket,
                config.time_divisor,
                device=device,
                dtype=dtype,
            )

    def reset_parameters(self) -> None:
        """Initialise the bias tables."""
        if self.bias is not None:
            self.bias.reset_parameters()

    def forward(
        self,
        q: JaggedTensor,
        k: JaggedTensor,
        v: JaggedTensor,
        num_targets: Tensor | None = None,
        timestamps: Tensor | None = None,
    ) -> JaggedTensor:
        """Attend within each row.

        Args:
            q, k, v: values [T, H, D], [T, H, D], [T, H, V], the same rows.
            num_targets: [B] integers: the last elements of each row, which see the history and
                themselves and nobody else sees.
            timestamps: [T] int64, where the config has `time_buckets`.
        """
        for name, operand in (("q", q), ("k", k), ("v", v)):
            check_jagged(name, operand)
            check_same_rows(name, operand, "q", q)
        out = self.attend(
            q.values,
            k.values,
            v.values,
            q.offsets,
            max_length=longest(q, self.config.max_length, "HSTUConfig(max_length=...)"),
            num_targets=num_targets,
            timestamps=timestamps,
        )
        return q.with_values(out)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        offsets: Tensor,
        *,
        max_length: int,
        num_targets: Tensor | None,
        timestamps: Tensor | None,
    ) -> Tensor:
        """The same on plain tensors."""
        if self.bias is None and timestamps is not None:
            raise ValueError(
                "timestamps must not be given to HSTU without a time bias, which would ignore "
                "them: set HSTUConfig(time_buckets=...)"
            )
        return ops.hstu_attention(
            to_autocast(q),
            to_autocast(k),
            to_autocast(v),
            offsets,
            max_length=max_length,
            scale=self.scale,
            alpha=self.config.alpha,
            mask=self.mask,
            num_targets=num_targets,
            bias=None if self.bias is None else self.bias(timestamps),
        )

    def extra_repr(self) -> str:
        alpha = "1/sqrt(D)" if self.config.alpha is None else f"{self.config.alpha:g}"
        mask = self.mask
        return (
            f"scale={self.scale:.4g}, alpha={alpha}, window={mask.window}, "
            f"contextual={mask.contextual}, min_full={mask.min_full}"
        )
