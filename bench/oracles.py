"""What the ops mean, in vectorised float64 on the device of the inputs, with gradients by autograd.

Rows are taken in order of length, a chunk at a time, and padded to the longest of their chunk, so
that the oracle of millions of elements takes a fraction of a second on a GPU. `jagged.testing`
holds the specification, a loop over rows, against which the tests hold these.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from bench.inputs import Inputs
from jagged import HSTUMask

# Padded elements of a chunk: 1 GiB a tensor of that size in float64.
_CHUNK = 2**27


class Kind(Enum):
    """What the first dimension of an operand or a result counts."""

    ELEMENTS = "elements"
    ROWS = "rows"
    SHARED = "shared"  # parameters: every row uses all of it


@dataclass(frozen=True)
class Part:
    """A chunk of rows: n the longest of them, and where their elements are."""

    inputs: Inputs
    rows: Tensor  # [b]: which rows
    longest: int  # n
    elements: Tensor  # [t]: which elements, row by row
    row: Tensor  # [t]: the row within the chunk
    position: Tensor  # [t]

    @property
    def counts(self) -> Tensor:
        """[b] row lengths."""
        return self.inputs.counts[self.rows]

    @property
    def keep(self) -> Tensor:
        """[b, n]: cells that hold an element."""
        index = torch.arange(self.longest, device=self.rows.device)
        return index < self.counts[:, None]

    @property
    def _slot(self) -> Tensor:
        return self.row * self.longest + self.position

    def pad(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """[t, ...] to [b, n, ...]."""
        size = self.rows.shape[0] * self.longest
        out = values.new_full((size, *values.shape[1:]), fill).index_copy(0, self._slot, values)
        return out.reshape(self.rows.shape[0], self.longest, *values.shape[1:])

    def unpad(self, dense: Tensor) -> Tensor:
        """[b, n or more, ...] to [t, ...]."""
        return dense[:, : self.longest].flatten(0, 1).index_select(0, self._slot)

    def take(self, x: Tensor, kind: Kind) -> Tensor:
        """The part of an operand that these rows use, in float64."""
        if kind is Kind.SHARED:
            return x.detach().to(torch.float64)
        index = self.elements if kind is Kind.ELEMENTS else self.rows
        return x.detach().index_select(0, index).to(torch.float64)

    def put(self, out: Tensor, x: Tensor, kind: Kind) -> None:
        """Put a part of a result in its place; shared ones are summed."""
        if kind is Kind.SHARED:
            out.add_(x)
        else:
            out.index_copy_(0, self.elements if kind is Kind.ELEMENTS else self.rows, x)


Operands = Mapping[str, Tensor]
Formula = Callable[[Operands, Part], Tensor]


@dataclass(frozen=True)
class Meaning:
    """An op as a formula on chunks of rows, and how its operands and its result are cut."""

    kinds: Mapping[str, Kind]
    result: Kind
    formula: Formula
    # Cells of the largest intermediate for b rows padded to n.
    cells: Callable[[Inputs, int], int] = lambda inputs, n: n * inputs.shape.width


@dataclass(frozen=True)
class Exact:
    """The float64 result, and the float64 gradients in the order of the operands."""

    out: Tensor
    gradients: tuple[Tensor, ...]


def parts(inputs: Inputs, cells: Callable[[Inputs, int], int]) -> Iterator[Part]:
    """All rows in chunks, shortest rows first."""
    order = torch.argsort(inputs.lengths, stable=True)
    ordered = inputs.lengths[order]
    starts = (inputs.lengths.cumsum(0) - inputs.lengths)[order]
    begin, rows = 0, inputs.rows
    while begin < rows:
        end = begin + 1
        # Chunks double while they fit: cheap to find, and never more than the limit.
        step = 1
        while step:
            wanted = min(end + step, rows)
            fits = (wanted - begin) * cells(inputs, int(ordered[wanted - 1])) <= _CHUNK
            if fits and wanted > end:
                end, step = wanted, step * 2
            else:
                step //= 2
        length = ordered[begin:end]
        row = torch.repeat_interleave(torch.arange(end - begin), length)
        position = torch.arange(row.shape[0]) - (length.cumsum(0) - length)[row]
        elements = starts[begin:end][row] + position
        device = inputs.device
        yield Part(
            inputs,
            order[begin:end].to(device),
            int(ordered[end - 1]),
            elements.to(device),
            row.to(device),
            position.to(device),
        )
        begin = end


def exact(meaning: Meaning, inputs: Inputs, grad: Tensor | None, shape: tuple[int, ...]) -> Exact:
    """The op's result [shape] and, with an incoming gradient, the gradients of all operands."""

    def zeros(size: tuple[int, ...]) -> Tensor:
        return torch.zeros(size, dtype=torch.float64, device=inputs.device)

    out = zeros(shape)
    gradients = {
        name: zeros(tuple(x.shape)) for name, x in inputs.tensors.items() if grad is not None
    }
    for part in parts(inputs, meaning.cells):
        operands = {name: part.take(x, meaning.kinds[name]) for name, x in inputs.tensors.items()}
        if grad is None:
            part.put(out, meaning.formula(operands, part), meaning.result)
            continue
        for x in operands.values():
            x.requires_grad_()
        with torch.enable_grad():
            result = meaning.formula(operands, part)
        part.put(out, result.detach(), meaning.result)
        found = torch.autograd.grad(
            result, list(operands.values()), part.take(grad, meaning.result), materialize_grads=True
        )
        for (name, total), piece in zip(gradients.items(), found, strict=True):
            part.put(total, piece, meaning.kinds[name])
    return Exact(out, tuple(gradients.values()))


# Formulas -------------------------------------------------------------------------------------


def _over_trailing(flag: Tensor, like: Tensor) -> Tensor:
    return flag.reshape(flag.shape + (1,) * (like.ndim - flag.ndim))


def row_sum(x: Operands, part: Part) -> Tensor:
    return part.pad(x["values"]).sum(1)


def row_mean(x: Operands, part: Part) -> Tensor:
    total = row_sum(x, part)
    return total / _over_trailing(part.counts.clamp(min=1), total)


def softmax(x: Operands, part: Part) -> Tensor:
    return part.unpad(part.pad(x["values"], -torch.inf).softmax(1))


def layer_norm(x: Operands, part: Part) -> Tensor:
    dense = part.pad(x["values"])
    keep = part.keep[:, :, None]
    count = (part.counts * dense.shape[2]).clamp(min=1)[:, None, None]
    centered = torch.where(keep, dense - dense.sum((1, 2), keepdim=True) / count, 0)
    variance = (centered * centered).sum((1, 2), keepdim=True) / count
    return part.unpad(centered * (variance + 1e-5).rsqrt())


def token_layer_norm(x: Operands, part: Part) -> Tensor:
    values = x["values"]
    return torch.nn.functional.layer_norm(values, values.shape[1:], x["weight"], x["bias"], 1e-5)


def norm_mul_dropout(x: Operands, part: Part) -> Tensor:
    """With SiLU and concatenation, without dropout: numbers that are drawn cannot be compared."""
    gate = torch.nn.functional.silu(x["u"])
    return torch.cat([gate, x["values"], gate * token_layer_norm(x, part)], 1)


def dense_add(x: Operands, part: Part) -> Tensor:
    return x["values"] + part.unpad(x["dense"])


def padded_add(x: Operands, part: Part) -> Tensor:
    return x["dense"] + _widened(part.pad(x["values"]), part)


def row_add(x: Operands, part: Part) -> Tensor:
    return x["values"] + x["dense"].index_select(0, part.row)


def to_padded(x: Operands, part: Part) -> Tensor:
    return _widened(part.pad(x["values"]), part)


def from_padded(x: Operands, part: Part) -> Tensor:
    return part.unpad(x["dense"])


def dense_bmm(x: Operands, part: Part) -> Tensor:
    out = part.pad(x["values"]) @ x["dense"]
    return part.unpad(out + x["bias"][:, None] if "bias" in x else out)


def jagged_bmm(x: Operands, part: Part) -> Tensor:
    return part.pad(x["x"]).mT @ part.pad(x["y"])


def _widened(dense: Tensor, part: Part) -> Tensor:
    """[b, n, ...] to [b, N, ...]."""
    missing = part.inputs.longest - part.longest
    return torch.cat([dense, dense.new_zeros(dense.shape[0], missing, *dense.shape[2:])], 1)


def hstu_attention(x: Operands, part: Part) -> Tensor:
    inputs = part.inputs
    extra = inputs.attention
    assert extra is not None
    targets = None if extra.num_targets is None else extra.num_targets[part.rows]
    keep = keep_mask(part.counts, part.longest, extra.options.mask, targets)
    scale = extra.scale
    if isinstance(scale, Tensor):
        scale = part.pad(part.take(scale, Kind.ELEMENTS))[:, :, None]
    bias: Tensor | None = None
    if "position_table" in x:
        bias = x["position_table"][position_index(part.longest, inputs.longest, inputs.device)]
    if "time_table" in x:
        assert extra.timestamps is not None
        # Sums of integers: exact in float64.
        times = part.pad(part.take(extra.timestamps, Kind.ELEMENTS)).to(torch.int64)
        levels = x["time_table"].shape[0]
        bucket = time_bucket(times, part.counts, extra.divisor, levels)
        bias = x["time_table"][bucket] if bias is None else bias + x["time_table"][bucket]
    heads = []
    for head in range(x["q"].shape[1]):
        q, k, v = (part.pad(x[name][:, head]) for name in ("q", "k", "v"))
        scores = extra.alpha * (q @ k.mT)
        if bias is not None:
            scores = scores + bias
        weights = torch.where(keep, torch.nn.functional.silu(scores), 0) * scale
        heads.append(part.unpad(weights @ v))
    return torch.stack(heads, 1)


def softmax_attention(x: Operands, part: Part) -> Tensor:
    """Causal softmax attention: what varlen_attn computes in place of HSTU's."""
    scale = x["q"].shape[2] ** -0.5
    index = torch.arange(part.longest, device=part.rows.device)
    causal = index[:, None] >= index
    heads = []
    for head in range(x["q"].shape[1]):
        q, k, v = (part.pad(x[name][:, head]) for name in ("q", "k", "v"))
        scores = torch.where(causal, scale * (q @ k.mT), -torch.inf)
        heads.append(part.unpad(scores.softmax(2) @ v))
    return torch.stack(heads, 1)


def padded_cells(inputs: Inputs, n: int) -> int:
    """The whole of dense [B, N, D]."""
    return inputs.longest * inputs.shape.width


def product_cells(inputs: Inputs, n: int) -> int:
    """Padded elements and a matrix a row."""
    width, columns = inputs.shape.width, inputs.shape.columns
    return n * max(width, columns) + width * columns


def attention_cells(inputs: Inputs, n: int) -> int:
    """Scores of all heads, since autograd keeps them all."""
    assert inputs.shape.attention is not None
    return n * n * inputs.shape.attention.heads


def keep_mask(lengths: Tensor, longest: int, mask: HSTUMask, num_targets: Tensor | None) -> Tensor:
    """[b, n, n] bool: `HSTUMask.keep` of every row at once, padded with False."""
    position = torch.arange(longest, device=lengths.device)
    length = lengths[:, None]
    inside = position < length
    identity = position.expand(lengths.shape[0], longest)
    history = length
    if mask.contextual:
        identity = (identity - mask.contextual + 1).clamp(min=0)
        history = history - (mask.contextual - 1)
    if num_targets is not None:
        history = history - torch.minimum(num_targets[:, None].clamp(min=0), length)
        identity = torch.minimum(identity, history)
    query, key = identity[:, :, None], identity[:, None, :]
    history = history[:, :, None]
    keep = query > key
    keep |= position[:, None] == position
    if mask.window:
        near = query - key <= mask.window
        if mask.min_full:
            near |= query >= history - mask.min_full
        keep &= near
    if mask.contextual:
        keep |= (query == 0) & (key < history)
    return keep & inside[:, :, None] & inside[:, None, :]


def position_index(n: int, longest: int, device: torch.device) -> Tensor:
    """[n, n]: the entry of a position table [2 * longest - 1] for each (query, key)."""
    position = torch.arange(n, device=device)
    return longest - 1 + position[None, :] - position[:, None]


def time_bucket(times: Tensor, lengths: Tensor, divisor: float, levels: int) -> Tensor:
    """[b, n, n]: the entry of a time table [levels] for each (query, key), of `times` [b, n]."""
    index = torch.arange(times.shape[1], device=times.device)
    following = torch.minimum(index + 1, (lengths[:, None] - 1).clamp(min=0))
    apart = (times.gather(1, following)[:, :, None] - times[:, None, :]).abs().clamp(min=1)
    # The bucket is defined in float32.
    level = apart.to(torch.float32).log() / divisor
    return level.clamp(max=levels - 1).to(torch.int64)
