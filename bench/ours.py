"""Our contenders: the public function (`jagged`) and `jagged.eager` directly (`jagged-eager`)."""

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

import jagged
from bench.contenders import Call, Contender, call
from bench.inputs import Inputs
from jagged import BucketedBias

_EPS = 1e-5


class Way(NamedTuple):
    """The three ways into an op: the public one, and eager's forward and backward.

    `backward` gets the inputs, the incoming gradient and what `forward` returned.
    """

    public: Callable[[Inputs], Tensor]
    forward: Callable[[Inputs], Any]
    backward: Callable[[Inputs, Tensor, Any], Sequence[Tensor]]


@functools.cache
def _eager(op: str) -> Any:
    return importlib.import_module(f"jagged.eager.{op}")


def ours(op: str) -> tuple[Contender, Contender]:
    """The providers `jagged` and `jagged-eager` of an op."""
    way = _WAYS[op]

    def public(inputs: Inputs) -> Call:
        return call(inputs, lambda: way.public(inputs))

    def eager(inputs: Inputs) -> Call:
        def forward() -> Tensor:
            with torch.no_grad():
                result = way.forward(inputs)
            out: Tensor = result[0] if isinstance(result, tuple) else result
            return out

        def gradients(grad: Tensor) -> Callable[[], Sequence[Tensor]]:
            with torch.no_grad():
                saved = way.forward(inputs)

            def run() -> Sequence[Tensor]:
                with torch.no_grad():
                    return way.backward(inputs, grad, saved)

            return run

        return call(inputs, forward, gradients)

    return Contender("jagged", public), Contender("jagged-eager", eager)


def _bucketed_bias(inputs: Inputs) -> BucketedBias | None:
    extra = inputs.attention
    assert extra is not None
    if "position_table" not in inputs.tensors:
        return None
    table = inputs.tensors.get("time_table")
    return BucketedBias(inputs["position_table"], table, extra.timestamps, "log", extra.divisor)


def _public_attention(inputs: Inputs) -> Tensor:
    extra = inputs.attention
    assert extra is not None
    return jagged.ops.hstu_attention(
        inputs["q"],
        inputs["k"],
        inputs["v"],
        inputs.offsets,
        max_length=inputs.longest,
        scale=extra.scale,
        alpha=extra.alpha,
        mask=extra.options.mask,
        num_targets=extra.num_targets,
        bias=_bucketed_bias(inputs),
    )


def _flat_attention(inputs: Inputs) -> tuple[Any, ...]:
    """The arguments of the flat op from q on."""
    extra = inputs.attention
    assert extra is not None
    per_query = extra.scale if isinstance(extra.scale, Tensor) else None
    scale = 1.0 if isinstance(extra.scale, Tensor) else extra.scale
    mask = extra.options.mask
    tables = [inputs.tensors.get(name) for name in ("position_table", "time_table")]
    return (
        *(inputs[name] for name in "qkv"),
        inputs.offsets,
        inputs.longest,
        scale,
        per_query,
        extra.alpha,
        mask.window,
        mask.contextual,
        mask.min_full,
        extra.num_targets,
        *tables,
        extra.timestamps,
        "log",
        extra.divisor,
    )


def _total(i: Inputs) -> int:
    return int(i["values"].shape[0])


_WAYS = {
    "sum": Way(
        lambda i: jagged.ops.sum(i["values"], i.offsets),
        lambda i: _eager("sum").forward(i["values"], i.offsets),
        lambda i, g, _: (_eager("sum").backward(g, i.offsets, _total(i)),),
    ),
    "mean": Way(
        lambda i: jagged.ops.mean(i["values"], i.offsets),
        lambda i: _eager("mean").forward(i["values"], i.offsets),
        lambda i, g, _: (_eager("mean").backward(g, i.offsets, _total(i)),),
    ),
    "softmax": Way(
        lambda i: jagged.ops.softmax(i["values"], i.offsets),
        lambda i: _eager("softmax").forward(i["values"], i.offsets, None),
        lambda i, g, out: (_eager("softmax").backward(g, out, i.offsets, None),),
    ),
    "layer_norm": Way(
        lambda i: jagged.ops.layer_norm(i["values"], i.offsets),
        lambda i: _eager("layer_norm").forward(i["values"], i.offsets, None, None, _EPS),
        lambda i, g, saved: _eager("layer_norm").backward(
            g, i["values"], i.offsets, saved[1], saved[2], None, False
        )[:1],
    ),
    "token_layer_norm": Way(
        lambda i: jagged.ops.token_layer_norm(i["values"], i["weight"], i["bias"]),
        lambda i: _eager("token_layer_norm").forward(*i.leaves, _EPS, None),
        lambda i, g, saved: _eager("token_layer_norm").backward(
            g, i["values"], saved[1], saved[2], i["weight"], True, None
        ),
    ),
    "norm_mul_dropout": Way(
        lambda i: jagged.ops.norm_mul_dropout(
            i["values"], i["u"], i["weight"], i["bias"], silu=True, concat=True
        ),
        lambda i: _eager("norm_mul_dropout").forward(*i.leaves, _EPS, True, True, 0.0, None, None),
        lambda i, g, saved: _eager("norm_mul_dropout").backward(
            g, *i.leaves[:2], *saved[1:], *i.leaves[2:], True, True, True, 0.0, None, None
        ),
    ),
    "dense_add": Way(
        lambda i: jagged.ops.dense_add(i["values"], i.offsets, i["dense"]),
        lambda i: _eager("dense_add").forward(i["values"], i.offsets, i["dense"]),
        lambda i, g, _: _eager("dense_add").backward(g, i.offsets, i.longest, True, True),
    ),
    "padded_add": Way(
        lambda i: jagged.ops.padded_add(i["values"], i.offsets, i["dense"]),
        lambda i: _eager("padded_add").forward(i["values"], i.offsets, i["dense"]),
        # The gradient of dense is the incoming one.
        lambda i, g, _: (_eager("padded_add").backward(g, i.offsets, _total(i)), g),
    ),
    "row_add": Way(
        lambda i: jagged.ops.row_add(i["values"], i.offsets, i["dense"]),
        lambda i: _eager("row_add").forward(i["values"], i.offsets, i["dense"]),
        lambda i, g, _: _eager("row_add").backward(g, i.offsets, True, True),
    ),
    "to_padded": Way(
        lambda i: jagged.ops.to_padded(i["values"], i.offsets, i.longest),
        lambda i: _eager("to_padded").forward(i["values"], i.offsets, i.longest, 0.0),
        lambda i, g, _: (_eager("to_padded").backward(g, i.offsets, _total(i)),),
    ),
    "from_padded": Way(
        lambda i: jagged.ops.from_padded(i["dense"], i.offsets, i.total),
        lambda i: _eager("from_padded").forward(i["dense"], i.offsets, i.total),
        lambda i, g, _: (_eager("from_padded").backward(g, i.offsets, i.longest),),
    ),
    "dense_bmm": Way(
        lambda i: jagged.ops.dense_bmm(i["values"], i.offsets, i["dense"], i.tensors.get("bias")),
        lambda i: _eager("dense_bmm").forward(
            i["values"], i.offsets, i["dense"], i.tensors.get("bias"), None
        ),
        lambda i, g, _: _eager("dense_bmm").backward(
            g, i["values"], i.offsets, i["dense"], "bias" in i.tensors, None, True, True
        )[: len(i.tensors)],
    ),
    "jagged_bmm": Way(
        lambda i: jagged.ops.jagged_bmm(i["x"], i["y"], i.offsets),
        lambda i: _eager("jagged_bmm").forward(i["x"], i["y"], i.offsets, None),
        lambda i, g, _: _eager("jagged_bmm").backward(
            g, i["x"], i["y"], i.offsets, None, True, True
        ),
    ),
    "hstu_attention": Way(
        _public_attention,
        lambda i: _eager("hstu_attention").forward(*_flat_attention(i)),
        lambda i, g, _: _eager("hstu_attention").backward(
            g, *_flat_attention(i), True, True, "position_table" in i.tensors
        )[: len(i.tensors)],
    ),
}
