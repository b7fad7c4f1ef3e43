"""One tile of HSTU attention: its elements, and the mask, scale and bias of its pairs."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from jagged.eager._hstu_bias import Bias, BlockBias, TileBias
from jagged.eager._hstu_mask import Block, Intervals, Shape, blocks, intervals
from jagged.eager._hstu_plan import Budget, Tile


class Setting(NamedTuple):
    """The arguments of the op beside q, k and v."""

    bounds: Tensor  # [B + 1] int64
    max_length: int
    scale: float
    scale_per_query: Tensor | None  # [T]
    alpha: float
    shape: Shape
    num_targets: Tensor | None  # [B]
    bias: Bias | None
    budget: Budget
    dtype: torch.dtype  # of the accumulation

    def rows(self, tile: Tile) -> "Rows":
        """The rows of a tile, padded with copies of their last elements."""
        start, stop = self.bounds[tile.rows, None], self.bounds[tile.rows + 1, None]
        length = stop - start
        position = torch.arange(tile.size, device=start.device)[None, :]
        seen = length.clamp(max=self.max_length)
        clamped = torch.minimum(position, seen - 1)
        element = start + clamped
        if self.num_targets is None and not self.shape.depends_on_length():
            # One mask for all rows: no query of a row sees the padding behind it.
            spans = intervals(position, position.new_full((1, 1), tile.size), None, self.shape)
        else:
            targets = None
            if self.num_targets is not None:
                targets = self.num_targets[tile.rows, None].to(torch.int64).clamp_(min=0)
                targets = torch.minimum(targets, length)
            spans = intervals(clamped, length, targets, self.shape)
            # Where a row is cut at max_length, its last keys are not there.
            spans = spans._replace(last=torch.minimum(spans.last, seen))
        scale = None
        if self.scale_per_query is not None:
            scale = self.scale_per_query[element, None].to(self.dtype)
        bias = None if self.bias is None else self.bias.of_tile(element, stop)
        found = blocks(spans, tile.size, self.budget.queries(tile.size))
        return Rows(element, seen, spans, found, self.scale, scale, bias, self.budget, self.dtype)


class Rows(NamedTuple):
    """R rows of n elements each, padding included."""

    element: Tensor  # [R, n] int64
    seen: Tensor  # [R, 1]: how many are not padding
    spans: Intervals
    blocks: list[Block]
    scale: float
    scale_per_query: Tensor | None  # [R, n, 1], instead of scale
    bias: TileBias | None
    budget: Budget
    dtype: torch.dtype

    def gather(self, values: Tensor) -> Tensor:
        """[R, n, H, X] from `values` [T, H, X], in the accumulation dtype."""
        picked = values.index_select(0, self.element.flatten()).to(self.dtype)
        return picked.view(*self.element.shape, *values.shape[1:])

    def gather_gradient(self, values: Tensor) -> Tensor:
        """As `gather`, and 0 in the padding: so padding contributes to no sum over queries."""
        position = torch.arange(self.element.shape[1], device=values.device)
        return self.gather(values).mul_((position < self.seen)[:, :, None, None])

    def parts(self) -> Iterator[tuple[Block, list[slice]]]:
        """The blocks of pairs, each with the groups of heads that are taken together."""
        for block in self.blocks:
            queries = block.query_end - block.query_start
            keys = block.key_end - block.key_start
            yield block, self.budget.head_groups(self.element.shape[0] * queries * keys)

    def factor(self, block: Block) -> Tensor | float:
        """Mask times scale for a block: a number, or [R or 1, queries, 1 or keys]."""
        scale: float | Tensor = self.scale
        if self.scale_per_query is not None:
            scale = self.scale_per_query[:, block.queries]
        if block.full:
            return scale
        return self.spans.block(block).to(self.dtype) * scale

    def block_bias(self, block: Block) -> BlockBias | None:
        """The bias of a block of pairs."""
        return None if self.bias is None else self.bias.block(block)

    def start(self, sums: list[Tensor]) -> None:
        """Set to 0 what is summed over several blocks."""
        if len(self.blocks) > 1:
            for total in sums:
                total.zero_()

    def add_product(self, out: Tensor, left: Tensor, right: Tensor, alpha: float = 1.0) -> None:
        """`out` [G, R, a, X] += alpha `left` [G, R, a, b] @ `right` [R, b, G, X], head by head.

        Writes where there is one block only: nothing is there yet.
        """
        beta = 0 if len(self.blocks) == 1 else 1
        for total, one, other in zip(out.unbind(0), left.unbind(0), right.unbind(2), strict=True):
            total.baddbmm_(one, other, beta=beta, alpha=alpha)


def products(left: Tensor, right: Tensor, alpha: float = 1.0) -> Tensor:
    """[G, R, a, b] = alpha `left` [R, a, G, X] @ `right` [R, b, G, X] transposed, head by head."""
    rows, queries, heads = left.shape[:3]
    out = left.new_empty((heads, rows, queries, right.shape[1]))
    transposed = right.permute(2, 0, 3, 1)
    for total, one, other in zip(out.unbind(0), left.unbind(2), transposed.unbind(0), strict=True):
        total.baddbmm_(one, other, beta=0, alpha=alpha)
    return out
