"""Layer norms: over a whole row, over an element's features, over an element's heads."""

import torch
from torch import Tensor, nn

from jagged import checks, ops
from jagged.layout import JaggedTensor
from jagged.modules._rows import check_jagged, check_values, zero_tail


class _Norm(nn.Module):
    """`weight` (ones) and `bias` (zeros) of a given size, either of which may be absent (None)."""

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        size: int,
        eps: float,
        affine: bool,
        bias: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        checks.epsilon(eps)
        self.size = size
        self.eps = eps
        has_bias = affine and bias
        self.weight = (
            nn.Parameter(torch.empty(size, device=device, dtype=dtype)) if affine else None
        )
        self.bias = (
            nn.Parameter(torch.empty(size, device=device, dtype=dtype)) if has_bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def extra_repr(self) -> str:
        return (
            f"{self.size}, eps={self.eps}, affine={self.weight is not None}, "
            f"bias={self.bias is not None}"
        )


class JaggedLayerNorm(_Norm):
    """One mean and one variance for each row, over all its elements and features.

    With n_i elements of D features in row i::

        mean_i = sum_jd x[i, j, d] / (n_i D)       var_i = sum_jd (x[i, j, d] - mean_i)^2 / (n_i D)
        out[i, j] = (x[i, j] - mean_i) / sqrt(var_i + eps) * weight + bias

    What tritonbench and Helion call jagged layer norm. HSTU uses `TokenLayerNorm`, which is Ba et
    al., arXiv 1607.06450, per element.

    Args:
        embedding_dim: D.
        eps: added to the variance.
        affine: learn `weight` [D].
        bias: learn `bias` [D] as well; without `affine` there is none.

    Takes and returns a jagged tensor with values [T, D]. float32 parameters go with bfloat16 or
    float16 values, also under autocast; statistics are float32.
    """

    def __init__(
        self,
        embedding_dim: int,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(embedding_dim, eps, affine, bias, device, dtype)

    def forward(self, x: JaggedTensor) -> JaggedTensor:
        check_jagged("x", x)
        check_values(x.values, (None, self.size), "[T, embedding_dim]")
        return x.with_values(ops.layer_norm(x.values, x.offsets, self.weight, self.bias, self.eps))


class TokenLayerNorm(_Norm):
    """Layer norm of every element over its D features (Ba et al., arXiv 1607.06450, eq. 4).

    Per element `out = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias`, as `torch.nn.LayerNorm`
    on the values, but the capacity tail is not read.

    Args:
        embedding_dim: D.
        eps: added to the variance.
        affine: learn `weight` [D].
        bias: learn `bias` [D] as well; without `affine` there is none.

    Takes and returns a jagged tensor with values [T, D]. float32 parameters go with bfloat16 or
    float16 values, also under autocast; statistics are float32.
    """

    def __init__(
        self,
        embedding_dim: int,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(embedding_dim, eps, affine, bias, device, dtype)

    def forward(self, x: JaggedTensor) -> JaggedTensor:
        check_jagged("x", x)
        return x.with_values(self.normalise(x.values, x.offsets))

    def normalise(self, values: Tensor, offsets: Tensor) -> Tensor:
        """The same on plain tensors: values [T, D] to [T, D]."""
        check_values(values, (None, self.size), "[T, embedding_dim]")
        return ops.token_layer_norm(values, self.weight, self.bias, self.eps, offsets)


class HeadLayerNorm(_Norm):
    """Layer norm of every head of an element over its V features, one weight and bias a head.

    Per head h of an element, with mean and variance over its V features,
    `out[h] = (x[h] - mean[h]) / sqrt(var[h] + eps) * weight[h] + bias[h]`: group normalisation
    (Wu and He, arXiv 1803.08494) with a group a head, the `group_norm` of production HSTU.

    Args:
        num_heads: H.
        eps: added to the variance.
        affine: learn `weight` [H].
        bias: learn `bias` [H] as well; without `affine` there is none.

    Takes and returns a jagged tensor with values [T, H, V].
    """

    def __init__(
        self,
        num_heads: int,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, eps, affine, bias, device, dtype)

    def forward(self, x: JaggedTensor) -> JaggedTensor:
        check_jagged("x", x)
        return x.with_values(self.normalise(x.values, x.offsets))

    def normalise(self, values: Tensor, offsets: Tensor) -> Tensor:
        """The same on plain tensors: values [T, H, V] to [T, H, V]."""
        check_values(values, (None, self.size, None), "[T, num_heads, V]")
        # Head h of element j is element j * H + h of a jagged tensor with H times the offsets.
        heads = offsets.to(torch.int64) * self.size
        flat = ops.token_layer_norm(values.flatten(0, 1), None, None, self.eps, heads)
        out = flat.reshape(values.shape)
        if self.weight is None:
            return out
        checks.norm_parameters(values, self.weight, self.bias, self.eps, by_head=True)
        out = out * self.weight[:, None]
        if self.bias is not None:
            out = out + self.bias[:, None]
        valid = torch.arange(values.shape[0], device=offsets.device) < offsets[-1]
        return zero_tail(out.to(values.dtype), valid)
