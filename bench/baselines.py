"""What a user could pick instead: fbgemm's operators, torch, torch.compile.

Where a user could keep tensors padded or nested all along, the contender gets them so, and the
conversion is not timed. Index tensors (row ids) are prepared as well.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from bench.contenders import Call, call, compiled, in_form, padded
from bench.inputs import Inputs


def over_trailing(flag: Tensor, like: Tensor) -> Tensor:
    return flag.reshape(flag.shape + (1,) * (like.ndim - flag.ndim))


def fbgemm() -> "torch._ops._OpNamespace":
    import fbgemm_gpu  # noqa: F401 (registers the operators)

    return torch.ops.fbgemm


def padding(inputs: Inputs) -> Callable[[Tensor], Tensor]:
    op = fbgemm().jagged_to_padded_dense
    offsets, longest = [inputs.offsets], [inputs.longest]
    return lambda values: op(values, offsets, longest)


def nested_view(inputs: Inputs, values: Tensor) -> Tensor:
    """A nested tensor over `values`: a view that knows its lengths' bounds and never reads them."""
    return torch.nested.nested_tensor_from_jagged(
        values, inputs.offsets, min_seqlen=int(inputs.lengths.min()), max_seqlen=inputs.longest
    )


# sum, mean ------------------------------------------------------------------------------------


def fbgemm_sum(inputs: Inputs) -> Call:
    """fbgemm has no jagged sum: its users pad, then sum."""
    pad = padding(inputs)
    return call(inputs, lambda: pad(inputs["values"]).sum(1))


def fbgemm_csr(inputs: Inputs) -> Call:
    """One number an element alone."""
    op = fbgemm().segment_sum_csr
    return call(inputs, lambda: op(1, inputs.offsets, inputs["values"]))


def segment_sum(inputs: Inputs) -> Call:
    return call(
        inputs,
        lambda: torch.segment_reduce(
            inputs["values"], "sum", offsets=inputs.offsets, axis=0, unsafe=True
        ),
    )


def segment_mean(inputs: Inputs) -> Call:
    # With `initial` an empty row gives 0, not NaN.
    return call(
        inputs,
        lambda: torch.segment_reduce(
            inputs["values"], "mean", offsets=inputs.offsets, axis=0, unsafe=True, initial=0
        ),
    )


def padded_sum(inputs: Inputs) -> Call:
    return in_form(inputs, padded(inputs), ["values"], lambda x: x["values"].sum(1))


def _counts(inputs: Inputs) -> Tensor:
    return over_trailing(inputs.counts.clamp(min=1), inputs["values"])


def padded_mean(inputs: Inputs) -> Call:
    counts = _counts(inputs)
    return in_form(inputs, padded(inputs), ["values"], lambda x: x["values"].sum(1) / counts)


def compiled_sum(inputs: Inputs) -> Call:
    keep = inputs.keep
    function = compiled(inputs, lambda x: torch.where(over_trailing(keep, x), x, 0).sum(1))
    return in_form(inputs, padded(inputs), ["values"], lambda x: function(x["values"]))


def compiled_mean(inputs: Inputs) -> Call:
    keep, counts = inputs.keep, _counts(inputs)
    function = compiled(inputs, lambda x: torch.where(over_trailing(keep, x), x, 0).sum(1) / counts)
    return in_form(inputs, padded(inputs), ["values"], lambda x: function(x["values"]))


def nested_sum(inputs: Inputs) -> Call:
    nested = nested_view(inputs, inputs["values"])
    return call(inputs, lambda: nested.sum(1))


def nested_mean(inputs: Inputs) -> Call:
    nested = nested_view(inputs, inputs["values"])
    empty = over_trailing(inputs.counts == 0, inputs["values"])
    # An empty row gives NaN there.
    return call(inputs, lambda: nested.mean(1).masked_fill(empty, 0))


# softmax --------------------------------------------------------------------------------------


def fbgemm_softmax(inputs: Inputs) -> Call:
    op = fbgemm().jagged_softmax
    offsets, longest = inputs.offsets, inputs.longest

    def run() -> Tensor:
        values = inputs["values"]
        out: Tensor = op(values.reshape(values.shape[0], -1), offsets, longest)[0]
        return out.reshape(values.shape)

    return call(inputs, run)


def padded_softmax(inputs: Inputs) -> Call:
    form = padded(inputs, -torch.inf)
    return in_form(inputs, form, ["values"], lambda x: x["values"].softmax(1), padded(inputs))


def compiled_softmax(inputs: Inputs) -> Call:
    keep = inputs.keep
    function = compiled(
        inputs, lambda x: torch.where(over_trailing(keep, x), x, -torch.inf).softmax(1)
    )
    form = padded(inputs)
    return in_form(inputs, form, ["values"], lambda x: function(x["values"]), form)


def nested_softmax(inputs: Inputs) -> Call:
    nested = nested_view(inputs, inputs["values"])
    return call(inputs, lambda: nested.softmax(1).values())


def segment_softmax(inputs: Inputs) -> Call:
    """Segment reductions for the maximum and the sum, gathers in between."""
    offsets, row = inputs.offsets, inputs.row

    def run() -> Tensor:
        values = inputs["values"]
        # The maximum only shifts: it needs no gradient.
        top = torch.segment_reduce(values.detach(), "max", offsets=offsets, axis=0, unsafe=True)
        weights = (values - top.index_select(0, row)).exp()
        total = torch.segment_reduce(weights, "sum", offsets=offsets, axis=0, unsafe=True)
        return weights / total.index_select(0, row)

    return call(inputs, run)


# layer norms ----------------------------------------------------------------------------------


def _masked_layer_norm(values: Tensor, keep: Tensor, count: Tensor) -> Tensor:
    wide = torch.where(keep, values, 0).float()
    centered = torch.where(keep, wide - wide.sum((1, 2), keepdim=True) / count, 0)
    variance = (centered * centered).sum((1, 2), keepdim=True) / count
    return (centered * (variance + 1e-5).rsqrt()).to(values.dtype)


def _row_norm_sizes(inputs: Inputs) -> tuple[Tensor, Tensor]:
    count = (inputs.counts * inputs.shape.width).clamp(min=1)
    return inputs.keep[:, :, None], count[:, None, None]


def padded_layer_norm(inputs: Inputs) -> Call:
    keep, count = _row_norm_sizes(inputs)
    form = padded(inputs)
    return in_form(
        inputs, form, ["values"], lambda x: _masked_layer_norm(x["values"], keep, count), form
    )


def compiled_layer_norm(inputs: Inputs) -> Call:
    keep, count = _row_norm_sizes(inputs)
    function = compiled(inputs, _masked_layer_norm)
    form = padded(inputs)
    return in_form(inputs, form, ["values"], lambda x: function(x["values"], keep, count), form)


def nested_layer_norm(inputs: Inputs) -> Call:
    nested = nested_view(inputs, inputs["values"])
    return call(
        inputs, lambda: functional.layer_norm(nested, nested.shape[1:], None, None, 1e-5).values()
    )


def segment_layer_norm(inputs: Inputs) -> Call:
    """Segment sums of each element's moments, gathers in between."""
    offsets, row = inputs.offsets, inputs.row
    count = (inputs.counts * inputs.shape.width).clamp(min=1)

    def by_row(x: Tensor) -> Tensor:
        total = torch.segment_reduce(x.sum(1), "sum", offsets=offsets, axis=0, unsafe=True)
        return (total / count).index_select(0, row)[:, None]

    def run() -> Tensor:
        wide = inputs["values"].float()
        centered = wide - by_row(wide)
        return (centered * (by_row(centered * centered) + 1e-5).rsqrt()).to(inputs["values"].dtype)

    return call(inputs, run)


def torch_token_layer_norm(inputs: Inputs) -> Call:
    values, weight, bias = inputs.leaves
    width = values.shape[1:]
    return call(inputs, lambda: functional.layer_norm(values, width, weight, bias, 1e-5))


def _gated_norm(values: Tensor, u: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    gate = functional.silu(u)
    normed = functional.layer_norm(values, values.shape[1:], weight, bias, 1e-5)
    return torch.cat([gate, values, gate * normed], 1)


def torch_norm_mul_dropout(inputs: Inputs) -> Call:
    return call(inputs, lambda: _gated_norm(*inputs.leaves))


def compiled_norm_mul_dropout(inputs: Inputs) -> Call:
    function = compiled(inputs, _gated_norm)
    return call(inputs, lambda: function(*inputs.leaves))


def compiled_token_layer_norm(inputs: Inputs) -> Call:
    values, weight, bias = inputs.leaves
    width = values.shape[1:]
    function = compiled(inputs, lambda v, w, b: functional.layer_norm(v, width, w, b, 1e-5))
    return call(inputs, lambda: function(values, weight, bias))
