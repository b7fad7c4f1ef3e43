"""Pooling layers: one vector for each row."""

import torch
from torch import Tensor, nn

from jagged import checks, ops
from jagged.layout import JaggedTensor
from jagged.modules._rows import check_jagged, check_values, is_element, zero_tail


class SumPooling(nn.Module):
    """Sum of each row: `out[i] = sum_j x[i, j]`, 0 for an empty row.

    Takes a jagged tensor with values [T, ...] and returns [B, ...]. No layer reads `x.weights`: a
    weighted sum, as of torchrec's weighted features, is one of
    `x.with_values(x.values * x.weights[:, None])`.
    """

    def forward(self, x: JaggedTensor) -> Tensor:
        check_jagged("x", x)
        return ops.sum(x.values, x.offsets)


class MeanPooling(nn.Module):
    """Mean of each row: `out[i] = sum_j x[i, j] / n_i`, 0 for an empty row.

    Takes a jagged tensor with values [T, ...] and returns [B, ...].
    """

    def forward(self, x: JaggedTensor) -> Tensor:
        check_jagged("x", x)
        return ops.mean(x.values, x.offsets)


class LastPooling(nn.Module):
    """Last element of each row, 0 for an empty row: what next-item prediction reads of a history.

    `values[offsets[1:] - 1]` would give an empty row the vector of the row before it.

    Takes a jagged tensor with values [T, ...] and returns [B, ...].
    """

    def forward(self, x: JaggedTensor) -> Tensor:
        check_jagged("x", x)
        # Each row in two, the second of them its last element.
        start, end = x.offsets[:-1], x.offsets[1:]
        cuts = torch.stack([start, torch.maximum(end - 1, start)], 1).flatten()
        return ops.to_padded(x.values, torch.cat([cuts, x.offsets[-1:]]), 1)[1::2, 0]


class AttentionPooling(nn.Module):
    """Weighted mean of each row, the weights by a learned query: what one reads out of a history.

    With H heads and d = D / H, on the h-th slice of d features::

        s[j, h]  = <query[h], x[j, h]> / sqrt(d)
        out[i, h] = sum_j softmax_j(s[j, h]) x[j, h]          softmax over the row

    Attention with one learned query for all rows, as in Yang et al., "Hierarchical Attention
    Networks" (NAACL 2016, section 2.2), without their hidden layer, for which a `JaggedLinear`
    can be put in front.

    Args:
        embedding_dim: D.
        num_heads: H, a divisor of D.

    Shapes: values [T, D] to [B, D] of their dtype; an empty row gives 0. Parameter `query`
    [H, D / H], which may be float32 beside 16-bit values.

    Example:
        >>> x = jagged.JaggedTensor.from_rows([torch.randn(3, 8), torch.randn(5, 8)])
        >>> jagged.modules.AttentionPooling(8, num_heads=2)(x).shape
        torch.Size([2, 8])
    """

    def __init__(
        self,
        embedding_dim: int,
        num_heads: int = 1,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embedding_dim % num_heads != 0:
            raise ValueError(
                f"num_heads must divide embedding_dim, got {num_heads} heads for {embedding_dim}"
            )
        self.embedding_dim = embedding_dim
        self.num_heads = num_heads
        self.query = nn.Parameter(
            torch.empty(num_heads, embedding_dim // num_heads, device=device, dtype=dtype)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Standard normal: with normal inputs the scores have variance 1."""
        nn.init.normal_(self.query)

    def forward(self, x: JaggedTensor) -> Tensor:
        check_jagged("x", x)
        total = x.values.shape[0]
        check_values(x.values, (total, self.embedding_dim), "[T, embedding_dim]")
        checks.floating("x.values", x.values)
        checks.parameter_dtype("query", self.query, "x.values", x.values)
        values = zero_tail(x.values, is_element(x)).reshape(total, *self.query.shape)
        scores = (values * self.query).sum(-1) * max(self.query.shape[1], 1) ** -0.5
        probabilities = ops.softmax(scores, x.offsets)
        pooled = ops.sum(probabilities[:, :, None] * values, x.offsets)
        return pooled.flatten(1).to(x.values.dtype)

    def extra_repr(self) -> str:
        return f"{self.embedding_dim}, num_heads={self.num_heads}"
