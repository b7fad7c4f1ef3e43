"""The inputs of one case, and what contenders may prepare from them outside the timing."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bench.shapes import Attention, Shape


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """What HSTU attention takes and does not differentiate."""

    options: Attention
    alpha: float
    scale: float | Tensor  # a tensor is [T]
    num_targets: Tensor | None
    timestamps: Tensor | None
    divisor: float = 0.301


@dataclass(frozen=True, eq=False)
class Inputs:
    """`tensors` holds the differentiable operands by the op's names, in the op's order."""

    shape: Shape
    lengths: Tensor  # [B] int64, on the host
    offsets: Tensor
    tensors: dict[str, Tensor]
    attention: AttentionInputs | None = None

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    @property
    def leaves(self) -> tuple[Tensor, ...]:
        return tuple(self.tensors.values())

    @property
    def device(self) -> torch.device:
        return self.offsets.device

    @property
    def rows(self) -> int:
        return int(self.lengths.shape[0])

    @property
    def longest(self) -> int:
        """N: the bound of the row lengths that the model states."""
        return self.shape.longest

    @cached_property
    def total(self) -> int:
        """T, which a user knows from the shape of the values."""
        return int(self.lengths.sum())

    @cached_property
    def row(self) -> Tensor:
        """[T] int64: the row of each element."""
        rows = torch.arange(self.rows)
        return torch.repeat_interleave(rows, self.lengths).to(self.device)

    @cached_property
    def position(self) -> Tensor:
        """[T] int64: the place of each element in its row."""
        starts = self.offsets[:-1].to(torch.int64)
        return torch.arange(self.total, device=self.device) - starts[self.row]

    @cached_property
    def slot(self) -> Tensor:
        """[T] int64: the place of each element in [B * N]."""
        return self.row * self.longest + self.position

    @cached_property
    def counts(self) -> Tensor:
        """[B] int64 row lengths, on the device."""
        return self.lengths.to(self.device)

    @cached_property
    def keep(self) -> Tensor:
        """[B, N] bool: the cells that hold an element."""
        return torch.arange(self.longest, device=self.device) < self.counts[:, None]

    def pad(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """[T, ...] to [B, N, ...]."""
        out = values.new_full((self.rows * self.longest, *values.shape[1:]), fill)
        out.index_copy_(0, self.slot, values)
        return out.reshape(self.rows, self.longest, *values.shape[1:])

    def unpad(self, dense: Tensor) -> Tensor:
        """[B, N, ...] to [T, ...]."""
        return dense.flatten(0, 1).index_select(0, self.slot)

    def with_grad(self) -> "Inputs":
        """The same memory as leaves that require gradients."""
        leaves = {name: x.detach().requires_grad_() for name, x in self.tensors.items()}
        return dataclasses.replace(self, tensors=leaves)


class Maker:
    """Standard normal tensors of one dtype on one device, from one seed."""

    def __init__(self, dtype: torch.dtype, device: torch.device, seed: int = 0) -> None:
        self.dtype = dtype
        self.device = device
        self._generator = torch.Generator(device).manual_seed(seed)

    def __call__(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        out = torch.randn(*shape, generator=self._generator, device=self.device)
        return out.to(self.dtype if dtype is None else dtype)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=self._generator, device=self.device)


Operands = Callable[[Shape, int, Maker], dict[str, Tensor]]
"""(shape, T, maker) to the differentiable operands."""


def make_inputs(
    operands: Operands,
    shape: Shape,
    dtype: torch.dtype,
    device: torch.device,
    lengths: Tensor | None = None,
) -> Inputs:
    """Draw the inputs of a case; `lengths` replaces those of the shape."""
    lengths = shape.lengths() if lengths is None else lengths
    offsets = torch.zeros(lengths.shape[0] + 1, dtype=torch.int64)
    offsets[1:] = lengths.cumsum(0)
    maker = Maker(dtype, device)
    total = int(offsets[-1])
    tensors = operands(shape, total, maker)
    attention = None
    if shape.attention is not None:
        attention = _attention(shape, shape.attention, lengths, total, maker)
    return Inputs(shape, lengths, offsets.to(device, shape.offsets_dtype), tensors, attention)


def _attention(
    shape: Shape, options: Attention, lengths: Tensor, total: int, maker: Maker
) -> AttentionInputs:
    targets = timestamps = None
    scale: float | Tensor = 1 / shape.longest
    if options.targets:
        targets = maker.integers(1, options.targets + 1, lengths.shape[0])
        targets = torch.minimum(targets, lengths.to(maker.device))
    if options.time:
        timestamps = maker.integers(0, 100_000, total).cumsum(0)
    if options.per_query:
        scale = maker(total, dtype=torch.float32).abs() / shape.longest
    return AttentionInputs(options, shape.width**-0.5, scale, targets, timestamps)
