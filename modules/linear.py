"""Matrix products: one weight for all elements, a weight for each row, and products of rows."""

import math

import torch
from torch import Tensor, nn

from jagged import checks, ops
from jagged.layout import JaggedTensor
from jagged.modules._rows import (
    check_jagged,
    check_same_rows,
    check_values,
    is_element,
    to_autocast,
    zero_tail,
)


class JaggedLinear(nn.Module):
    """One affine map for all elements of all rows: `out[j] = x[j] W^T + b`.

    `torch.nn.Linear` on the values, except that the capacity tail reaches neither the result (0
    there) nor the gradients of W and b.

    Args:
        in_features: K.
        out_features: N.
        bias: learn b.

    Takes values [T, K], returns values [T, N]. Parameters `weight` [N, K] and `bias` [N],
    initialised as in `torch.nn.Linear`. Under autocast the product runs and returns in its dtype.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = nn.Parameter(
            torch.empty(out_features, in_features, device=device, dtype=dtype)
        )
        self.bias = (
            nn.Parameter(torch.empty(out_features, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in +-1 / sqrt(K), both weight and bias."""
        bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0.0
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: JaggedTensor) -> JaggedTensor:
        check_jagged("x", x)
        check_values(x.values, (None, self.in_features), "[T, in_features]")
        valid = is_element(x)
        out = nn.functional.linear(zero_tail(x.values, valid), self.weight, self.bias)
        return x.with_values(zero_tail(out, valid))

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class PerRowLinear(nn.Module):
    """Every row has an affine map of its own: `out[i, j] = x[i, j] W_i + b_i`.

    The contextual map of generative-recommenders' `ParameterizedContextualizedMLP`: what is known
    of the user or the request (the context c_i) chooses the weights that all elements of its
    history go through::

        W_i = reshape(A c_i + a, [K, N])        b_i = D c_i + d

    without the normalisation of W_i and the second MLP for b_i that are there. With
    `context_dim=None` the layer has no parameters and takes W_i and b_i themselves.

    Args:
        in_features: K.
        out_features: N.
        context_dim: C, the size of c_i, or None.
        bias: make a b_i as well, from the context.

    Shapes: values [T, K] to [T, N]; context [B, C]. Parameters `to_weight` (Linear C to K * N) and
    `to_bias` (Linear C to N). Under autocast all products run in its dtype.
    """

    to_weight: nn.Linear | None
    to_bias: nn.Linear | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        context_dim: int | None = None,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.context_dim = context_dim
        self.has_bias = bias
        self.to_weight = None
        self.to_bias = None
        if context_dim is not None:
            size = in_features * out_features
            self.to_weight = nn.Linear(context_dim, size, device=device, dtype=dtype)
            if bias:
                self.to_bias = nn.Linear(context_dim, out_features, device=device, dtype=dtype)
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """The part of W_i that all rows share, and for normal contexts the part that c_i chooses,
        both have the variance of Xavier initialisation for K to N; b_i starts at 0."""
        if self.to_weight is not None and self.context_dim is not None:
            bound = math.sqrt(6 / max(self.in_features + self.out_features, 1))
            scaled = bound / math.sqrt(max(self.context_dim, 1))
            nn.init.uniform_(self.to_weight.weight, -scaled, scaled)
            nn.init.uniform_(self.to_weight.bias, -bound, bound)
        if self.to_bias is not None:
            nn.init.zeros_(self.to_bias.weight)
            nn.init.zeros_(self.to_bias.bias)

    def forward(
        self, x: JaggedTensor, context: Tensor, row_bias: Tensor | None = None
    ) -> JaggedTensor:
        """Map every row by its weights.

        Args:
            x: values [T, K].
            context: c [B, C]; with `context_dim=None` the weights W [B, K, N].
            row_bias: b [B, N] or None, only with `context_dim=None`.
        """
        check_jagged("x", x)
        rows = x.num_rows
        if self.to_weight is None:
            weight = context
        else:
            checks.tensor("context", context)
            checks.shape("context", context, (rows, self.context_dim), "[B, context_dim]")
            if row_bias is not None:
                raise ValueError(
                    "row_bias must not be given to a layer with context_dim, which makes it from "
                    "the context: build it with context_dim=None to give the weights yourself"
                )
            weight = self.to_weight(context).reshape(rows, self.in_features, self.out_features)
            row_bias = None if self.to_bias is None else self.to_bias(context)
        shape = (rows, self.in_features, self.out_features)
        checks.tensor("weight", weight)
        checks.shape("weight", weight, shape, "[B, in_features, out_features]")
        values, weight = to_autocast(x.values), to_autocast(weight)
        if row_bias is not None:
            checks.tensor("row_bias", row_bias)
            row_bias = to_autocast(row_bias)
        return x.with_values(ops.dense_bmm(values, x.offsets, weight, row_bias))

    def extra_repr(self) -> str:
        return (
            f"{self.in_features}, {self.out_features}, context_dim={self.context_dim}, "
            f"bias={self.has_bias}"
        )


class JaggedBMM(nn.Module):
    """One matrix product for each row, with a dense or with a jagged right side.

    A dense right side y [B, K, N] gives the jagged `out[i, j] = x[i, j] y[i]` [T, N]; a jagged
    one with values [T, N] and the rows of x gives the dense `out[i] = x_i^T y_i` [B, M, N], where
    an empty row gives 0.

    Args:
        max_length: where every row stops: elements at or past it give 0, or are not summed. None
            takes whole rows.

    Under autocast the operands are cast to its dtype.
    """

    def __init__(self, max_length: int | None = None) -> None:
        super().__init__()
        checks.optional_length("max_length", max_length)
        self.max_length = max_length

    def forward(self, x: JaggedTensor, y: JaggedTensor | Tensor) -> JaggedTensor | Tensor:
        check_jagged("x", x)
        left = to_autocast(x.values)
        if isinstance(y, JaggedTensor):
            check_same_rows("y", y, "x", x)
            right = to_autocast(y.values)
            return ops.jagged_bmm(left, right, x.offsets, self.max_length)
        checks.tensor("y", y)
        out = ops.dense_bmm(left, x.offsets, to_autocast(y), None, self.max_length)
        return x.with_values(out)

    def extra_repr(self) -> str:
        return "" if self.max_length is None else f"max_length={self.max_length}"
