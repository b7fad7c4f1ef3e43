"""The rows of a global batch dealt to ranks so that all of them take the same time."""

import heapq
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from jagged.data.sampler import SamplerState, TokenBudgetSampler


def row_costs(lengths: Tensor, square: float) -> Tensor:
    """[B] float64: the predicted work of rows, `length + square * length**2`.

    All of a sequence model is linear in a row's elements but its attention, which takes the square;
    only the ratio of the two counts. By operations it is `1 / (5 * D)` for an HSTU layer of width
    D: its projections take 10 D² an element, its two products over a row's L² / 2 pairs 2 D L². By
    time: measure a batch of short rows and one of long rows.
    """
    exact = lengths.to(torch.float64)
    return exact + square * exact.square()


def balance_rows(costs: Tensor | Sequence[float], parts: int) -> list[Tensor]:
    """Deal rows to `parts` so that the costliest part is as cheap as a greedy rule makes it.

    Longest processing time first: rows from the costliest on, each to the cheapest part so far,
    the first of equals. No part costs more than the mean of all parts plus one row's cost, nor more
    than 4/3 of the best possible (Graham 1969). Where a few rows are long and many short, as
    lengths of users are, the short ones fill what the long ones leave, and more elaborate rules
    (Karmarkar-Karp) find nothing better. B log B on the host; no tensor on a GPU is looked at.

    Args:
        costs: [B] finite numbers on the CPU, none negative.
        parts: how many.

    Returns, for each part, the positions of its rows, int64, ascending: every row in one part.
    With fewer rows than parts the rest are empty.

    Raises:
        ValueError: parts below 1, costs of another shape, or one that is negative or not finite.
    """
    if parts < 1:
        raise ValueError(f"parts must be at least 1, got {parts}")
    given = torch.as_tensor(costs, dtype=torch.float64)
    if given.ndim != 1:
        raise ValueError(f"costs must be one-dimensional [B], got shape {list(given.shape)}")
    wrong = ~(given.isfinite() & (given >= 0))
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise ValueError(
            f"costs must be finite and not negative, got {float(given[row])} at row {row}"
        )
    known = given.tolist()
    loads = [(0.0, part) for part in range(parts)]  # a heap: all equal, in order
    owner = [0] * len(known)
    for row in given.argsort(descending=True, stable=True).tolist():
        load, part = loads[0]
        owner[row] = part
        heapq.heapreplace(loads, (load + known[row], part))
    by_part = torch.tensor(owner, dtype=torch.int64)
    sizes = torch.bincount(by_part, minlength=parts).tolist()
    return list(torch.split(by_part.argsort(stable=True), sizes))


class BalancedSampler:
    """One rank's part of every global batch: a `batch_sampler` for data-parallel training.

    Equal numbers of rows, or even of elements, give ranks unequal work, and all of them wait for
    the slowest. Every rank makes the same global batches and the same parts of them, and takes its
    own: nothing is communicated. The global batches do not depend on the number of ranks, so that a
    run continues on any other number.

    Args:
        batches: makes the global batches; its budget holds for all ranks together.
        rank: whose part to yield.
        ranks: how many parts.
        square: see `row_costs`.

    A part of a batch with fewer rows than ranks may be empty: the rank still takes part in the
    collectives of that step, with a batch of no rows that its `collate_fn` makes (`collate` cannot,
    it takes dtype and trailing shape from the rows). Iteration, epochs and state are those of
    `batches`::

        sampler = BalancedSampler(TokenBudgetSampler(lengths, budget), rank, ranks, square=1 / 1280)
        for rows in sampler:    # rows: list[int], in the order of the global batch
            ...

    Raises:
        ValueError: ranks below 1, rank outside 0..ranks-1, or a square that is negative or not
            finite.
    """

    def __init__(
        self, batches: TokenBudgetSampler, rank: int, ranks: int, *, square: float
    ) -> None:
        if ranks < 1:
            raise ValueError(f"ranks must be at least 1, got {ranks}")
        if not 0 <= rank < ranks:
            raise ValueError(f"rank must be in 0..{ranks - 1} of {ranks} ranks, got {rank}")
        if not (math.isfinite(square) and square >= 0):
            raise ValueError(f"square must be finite and not negative, got {square}")
        self.batches = batches
        self.rank = rank
        self.ranks = ranks
        self._costs = row_costs(batches.lengths, square)

    def parts(self, rows: Sequence[int]) -> list[list[int]]:
        """The rows of each rank, for a global batch."""
        if self.ranks == 1:
            return [list(rows)]
        index = torch.as_tensor(rows, dtype=torch.int64)
        return [index[part].tolist() for part in balance_rows(self._costs[index], self.ranks)]

    def __len__(self) -> int:
        """The number of batches in the current epoch, those already handed out included."""
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        for rows in self.batches:
            yield self.parts(rows)[self.rank]

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        self.batches.set_epoch(epoch)

    def state_dict(self) -> SamplerState:
        """Where the global batches stand: the same on every rank."""
        return self.batches.state_dict()

    def load_state_dict(self, state: SamplerState) -> None:
        """Continue where a sampler of the same batches stood, whatever its number of ranks."""
        self.batches.load_state_dict(state)
