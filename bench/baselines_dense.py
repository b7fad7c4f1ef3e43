"""What a user could pick instead, continued: additions, conversions, matrix products."""

import torch
from torch import Tensor
from torch.nn import functional

from bench.baselines import fbgemm, nested_view, over_trailing, padding
from bench.contenders import Call, call, compiled, in_form, padded
from bench.inputs import Inputs

# additions and conversions --------------------------------------------------------------------


def fbgemm_dense_add(inputs: Inputs) -> Call:
    op = fbgemm().jagged_dense_elementwise_add_jagged_output
    offsets = [inputs.offsets]
    return call(inputs, lambda: op(inputs["values"], offsets, inputs["dense"])[0])


def index_dense_add(inputs: Inputs) -> Call:
    slot = inputs.slot
    return call(
        inputs,
        lambda: inputs["values"] + inputs["dense"].flatten(0, 1).index_select(0, slot),
    )


def compiled_dense_add(inputs: Inputs) -> Call:
    slot = inputs.slot
    function = compiled(inputs, lambda x, y: x + y.flatten(0, 1).index_select(0, slot))
    return call(inputs, lambda: function(inputs["values"], inputs["dense"]))


def padded_dense_add(inputs: Inputs) -> Call:
    form = padded(inputs)
    return in_form(inputs, form, ["values"], lambda x: x["values"] + x["dense"], form)


def nested_dense_add(inputs: Inputs) -> Call:
    nested = nested_view(inputs, inputs["values"])
    return call(inputs, lambda: (nested + inputs["dense"]).values())


def fbgemm_padded_add(inputs: Inputs) -> Call:
    op = fbgemm().jagged_dense_elementwise_add
    offsets = [inputs.offsets]
    return call(inputs, lambda: op(inputs["values"], offsets, inputs["dense"]))


def index_padded_add(inputs: Inputs) -> Call:
    slot = inputs.slot

    def run() -> Tensor:
        dense = inputs["dense"]
        return dense.flatten(0, 1).index_add(0, slot, inputs["values"]).reshape(dense.shape)

    return call(inputs, run)


def _gathered(values: Tensor, offsets: Tensor, keep: Tensor) -> Tensor:
    """[B, N, ...] by reading: torch.compile fuses it with what follows."""
    index = offsets[:-1, None] + torch.arange(keep.shape[1], device=values.device)
    index = torch.where(keep, index, 0)
    return torch.where(over_trailing(keep, values[:1, None]), values[index], 0)


def compiled_padded_add(inputs: Inputs) -> Call:
    offsets, keep = inputs.offsets, inputs.keep
    function = compiled(inputs, lambda x, y: _gathered(x, offsets, keep) + y)
    return call(inputs, lambda: function(inputs["values"], inputs["dense"]))


def index_row_add(inputs: Inputs) -> Call:
    row = inputs.row
    return call(inputs, lambda: inputs["values"] + inputs["dense"].index_select(0, row))


def compiled_row_add(inputs: Inputs) -> Call:
    row = inputs.row
    function = compiled(inputs, lambda x, y: x + y.index_select(0, row))
    return call(inputs, lambda: function(inputs["values"], inputs["dense"]))


def nested_row_add(inputs: Inputs) -> Call:
    nested = nested_view(inputs, inputs["values"])
    return call(inputs, lambda: (nested + inputs["dense"].unsqueeze(1)).values())


def fbgemm_to_padded(inputs: Inputs) -> Call:
    pad = padding(inputs)
    return call(inputs, lambda: pad(inputs["values"]))


def index_to_padded(inputs: Inputs) -> Call:
    return call(inputs, lambda: inputs.pad(inputs["values"]))


def compiled_to_padded(inputs: Inputs) -> Call:
    offsets, keep = inputs.offsets, inputs.keep
    function = compiled(inputs, lambda x: _gathered(x, offsets, keep))
    return call(inputs, lambda: function(inputs["values"]))


def nested_to_padded(inputs: Inputs) -> Call:
    values = inputs["values"]
    nested = nested_view(inputs, values)
    size = (inputs.rows, inputs.longest, *values.shape[1:])
    return call(inputs, lambda: torch.nested.to_padded_tensor(nested, 0.0, size))


def fbgemm_from_padded(inputs: Inputs) -> Call:
    op = fbgemm().dense_to_jagged
    offsets, total = [inputs.offsets], inputs.total

    def run() -> Tensor:
        dense = inputs["dense"]
        if dense.ndim == 2:  # the operator takes [B, N, D] alone
            dense = dense[:, :, None]
        out: Tensor = op(dense, offsets, total)[0]
        return out.flatten() if inputs["dense"].ndim == 2 else out

    return call(inputs, run)


def index_from_padded(inputs: Inputs) -> Call:
    return call(inputs, lambda: inputs.unpad(inputs["dense"]))


def compiled_from_padded(inputs: Inputs) -> Call:
    slot = inputs.slot
    function = compiled(inputs, lambda x: x.flatten(0, 1).index_select(0, slot))
    return call(inputs, lambda: function(inputs["dense"]))


# products -------------------------------------------------------------------------------------


def fbgemm_dense_bmm(inputs: Inputs) -> Call:
    op = fbgemm().jagged_dense_bmm
    offsets, longest = inputs.offsets, inputs.longest
    row = inputs.row

    def run() -> Tensor:
        out: Tensor = op(inputs["values"], offsets, inputs["dense"], longest)[0]
        return out + inputs["bias"].index_select(0, row) if "bias" in inputs.tensors else out

    return call(inputs, run)


def _batched(values: Tensor, dense: Tensor, bias: Tensor | None = None) -> Tensor:
    if bias is None:
        return torch.bmm(values, dense)
    return torch.baddbmm(bias[:, None], values, dense)


def padded_dense_bmm(inputs: Inputs) -> Call:
    form = padded(inputs)
    return in_form(inputs, form, ["values"], lambda x: _batched(*x.values()), form)


def compiled_dense_bmm(inputs: Inputs) -> Call:
    function = compiled(inputs, _batched)
    form = padded(inputs)
    return in_form(inputs, form, ["values"], lambda x: function(*x.values()), form)


def nested_dense_bmm(inputs: Inputs) -> Call:
    nested = nested_view(inputs, inputs["values"])

    def run() -> Tensor:
        out = torch.matmul(nested, inputs["dense"])
        if "bias" in inputs.tensors:
            out = out + inputs["bias"][:, None]
        return out.values()

    return call(inputs, run)


def grouped_dense_bmm(inputs: Inputs) -> Call:
    """Rows as the groups of a grouped product. Backward it needs lengths that 8 divides."""
    ends = inputs.offsets[1:].to(torch.int32)
    row = inputs.row

    def run() -> Tensor:
        out = functional.grouped_mm(inputs["values"], inputs["dense"], offs=ends)
        return out + inputs["bias"].index_select(0, row) if "bias" in inputs.tensors else out

    return call(inputs, run)


def fits_grouped(inputs: Inputs) -> bool:
    return inputs["values"].dtype == torch.bfloat16


def fbgemm_jagged_bmm(inputs: Inputs) -> Call:
    op = fbgemm().jagged_jagged_bmm
    offsets, longest = inputs.offsets, inputs.longest
    return call(inputs, lambda: op(inputs["x"], inputs["y"], offsets, longest))


def padded_jagged_bmm(inputs: Inputs) -> Call:
    return in_form(inputs, padded(inputs), ["x", "y"], lambda x: torch.bmm(x["x"].mT, x["y"]))


def compiled_jagged_bmm(inputs: Inputs) -> Call:
    function = compiled(inputs, lambda x, y: torch.bmm(x.mT, y))
    return in_form(inputs, padded(inputs), ["x", "y"], lambda x: function(x["x"], x["y"]))


def nested_jagged_bmm(inputs: Inputs) -> Call:
    x, y = (nested_view(inputs, inputs[name]) for name in ("x", "y"))
    return call(inputs, lambda: torch.matmul(x.transpose(1, 2), y))
