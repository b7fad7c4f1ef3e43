"""What an HSTU layer is made of: one record, and the two published layers as presets."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import torch

from jagged import checks
from jagged.attention import HSTUMask


@dataclass(frozen=True, kw_only=True)
class HSTUConfig:
    """The shape and the options of `HSTULayer`, `HSTUStack` and `HSTUAttention`.

    Two different layers are called HSTU; `HSTUConfig.research(...)` and
    `HSTUConfig.production(...)` give them, and any field can be changed there by name. The plain
    constructor has the options of the production layer, without dropout.

    Args:
        embedding_dim: E, features of an element.
        num_heads: H.
        attention_dim: D of a head's q and k.
        hidden_dim: V of a head's v and u.
        max_length: N, the longest row the model takes. Used where a batch does not state its own
            `max_length`, for the default `scale`, and for the position table. Of a longer row in a
            batch that does not state it only the first N elements attend, without a word: no
            layer waits for the device to look. Cut rows where they are collated.
        num_layers: of an `HSTUStack`.
        scale: what each attention weight is multiplied by. None for 1 / N: a constant of the
            model, never the longest row of a batch, so a row's result does not depend on the
            rows beside it.
        alpha: what q kᵀ is multiplied by; None for 1 / sqrt(D).
        window: how far back an element looks, 0 for no limit; a tuple gives each layer its own.
        contextual: how many elements at the start of each row are context.
        min_full: the last elements of a row that are free of the window. All three are the
            arguments of `jagged.HSTUMask`.
        activation: where SiLU is applied: to all of "uvqk", or to "u".
        projection_bias: a bias in the fused U, V, Q, K projection.
        projection_std: standard deviation of that projection's initial weights; None for Xavier.
        output_bias: a bias in the output projection.
        norm_affine: weight and bias in both layer norms.
        group_norm: normalise the attention's result per head, instead of over all heads.
        concat_u: project `[u, attention, u * LN(attention)]`, instead of the last alone.
        dropout: probability, on what the output projection reads.
        eps: of both layer norms.
        position_bias: add a learned bias for the distance in position to the scores.
        time_buckets: add one for the distance in time, with so many buckets; 0 for none.
        time_bucket: "log" or "sqrt".
        time_divisor: width of a bucket. See `jagged.BucketedBias`.
    """

    embedding_dim: int
    num_heads: int
    attention_dim: int
    hidden_dim: int
    max_length: int | None = None
    num_layers: int = 1
    scale: float | None = None
    alpha: float | None = None
    window: int | tuple[int, ...] = 0
    contextual: int = 0
    min_full: int = 0
    activation: Literal["uvqk", "u"] = "u"
    projection_bias: bool = True
    projection_std: float | None = None
    output_bias: bool = False
    norm_affine: bool = True
    group_norm: bool = False
    concat_u: bool = True
    dropout: float = 0.0
    eps: float = 1e-6
    position_bias: bool = False
    time_buckets: int = 0
    time_bucket: Literal["log", "sqrt"] = "log"
    time_divisor: float = 0.301

    @classmethod
    def research(
        cls,
        *,
        embedding_dim: int,
        num_heads: int,
        attention_dim: int,
        hidden_dim: int,
        max_length: int,
        **changes: Any,
    ) -> "HSTUConfig":
        """The layer behind the paper's tables (Zhai et al., arXiv 2402.17152, eq. 1-3).

        SiLU on U, V, Q and K; layer norms without weight and bias; relative bias by position and
        by 128 logarithmic buckets of time; alpha 1; scale 1 / N; initial projection N(0, 0.02);
        output `Linear(dropout(u * LN(attention))) + x`; dropout 0.2 (MovieLens). For ML-1M
        N is 211, E 50, 2 layers of 1 head with D = V = 50; "large": 8 layers, 2 heads of 25.
        """
        preset: dict[str, Any] = {
            "alpha": 1.0,
            "activation": "uvqk",
            "projection_bias": False,
            "projection_std": 0.02,
            "output_bias": True,
            "norm_affine": False,
            "concat_u": False,
            "dropout": 0.2,
            "position_bias": True,
            "time_buckets": 128,
        }
        return cls(
            embedding_dim=embedding_dim,
            num_heads=num_heads,
            attention_dim=attention_dim,
            hidden_dim=hidden_dim,
            max_length=max_length,
            **{**preset, **changes},
        )

    @classmethod
    def production(
        cls,
        *,
        embedding_dim: int,
        num_heads: int,
        attention_dim: int,
        hidden_dim: int,
        max_length: int,
        **changes: Any,
    ) -> "HSTUConfig":
        """The STU layer of generative-recommenders' ranking model (`STULayer`, `DlrmHSTU`).

        SiLU on U alone; bias in the U, V, Q, K projection; layer norms with weight and bias; no
        relative bias; alpha 1 / sqrt(D); scale 1 / N; Xavier initialisation; output
        `Linear(dropout([u, attention, u * LN(attention)])) + x` without bias; dropout 0.3. DLRMv3
        has E 512, 5 layers, 4 heads with D = V = 128, dropout 0.1.
        """
        preset: dict[str, Any] = {"dropout": 0.3}
        return cls(
            embedding_dim=embedding_dim,
            num_heads=num_heads,
            attention_dim=attention_dim,
            hidden_dim=hidden_dim,
            max_length=max_length,
            **{**preset, **changes},
        )

    def __post_init__(self) -> None:
        sizes = ("embedding_dim", "num_heads", "attention_dim", "hidden_dim", "num_layers")
        integers = (*sizes, "max_length", "contextual", "min_full", "time_buckets")
        floats = ("scale", "alpha", "projection_std", "dropout", "eps", "time_divisor")
        optional = ("max_length", "scale", "alpha", "projection_std")
        left_out = [name for name in optional if getattr(self, name) is None]
        for name in (*integers, *floats):
            if name in left_out:
                continue
            check, plain = (checks.length, int) if name in integers else (checks.finite, float)
            check(name, getattr(self, name))
            # numpy's numbers are no plain data
            object.__setattr__(self, name, plain(getattr(self, name)))
        for name in sizes:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.max_length is None:
            if self.scale is None:
                raise ValueError(
                    "scale must be given where max_length is not: by default it is 1 / max_length, "
                    "a constant of the model"
                )
            if self.position_bias:
                raise ValueError(
                    "max_length must be given with position_bias: the table has 2 * max_length - 1 "
                    "entries"
                )
        elif self.max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {self.max_length}")
        checks.probability("dropout", self.dropout)
        if self.activation not in ("uvqk", "u"):
            raise ValueError(f'activation must be "uvqk" or "u", got {self.activation!r}')
        for name in ("eps", "projection_std"):
            if (getattr(self, name) or 0.0) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if isinstance(self.window, list):
            raise TypeError(f"window must be one int or a tuple of them, got {self.window}")
        masks = [HSTUMask(one, self.contextual, self.min_full) for one in self._windows()]
        windows = tuple(mask.window for mask in masks)
        object.__setattr__(
            self, "window", windows if isinstance(self.window, tuple) else windows[0]
        )
        if isinstance(self.window, tuple) and len(self.window) != self.num_layers:
            raise ValueError(
                f"window must be one int or one for each of {self.num_layers} layers, "
                f"got {self.window}"
            )

    def layer(self, index: int) -> "HSTUConfig":
        """The config of one layer of the stack: that layer's window, `num_layers` 1."""
        if not 0 <= index < self.num_layers:
            raise IndexError(f"index must be in 0..{self.num_layers - 1}, got {index}")
        window = self.window[index] if isinstance(self.window, tuple) else self.window
        return dataclasses.replace(self, window=window, num_layers=1)

    def mask(self) -> HSTUMask:
        """The mask of a single layer.

        Raises:
            ValueError: `window` is a tuple, one window for each layer of a stack.
        """
        if isinstance(self.window, tuple):
            raise ValueError(
                f"window must be one int for a single layer, got {self.window}: take the config of "
                "one layer with config.layer(index), or build an HSTUStack"
            )
        return HSTUMask(self.window, self.contextual, self.min_full)

    def score_scale(self) -> float:
        """`scale`, or its default 1 / max_length."""
        if self.scale is not None:
            return self.scale
        assert self.max_length is not None  # __post_init__ sees to it
        return 1.0 / self.max_length

    def _windows(self) -> tuple[int, ...]:
        return self.window if isinstance(self.window, tuple) else (self.window,)


# It holds nothing but data: `torch.load` may unpickle it, which otherwise takes no classes.
torch.serialization.add_safe_globals([HSTUConfig])
