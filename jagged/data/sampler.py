"""Batches of rows with a bounded number of elements, deterministic and resumable."""

import functools
import hashlib
import numbers
from collections.abc import Iterator, Sequence
from typing import TypedDict

import torch
from torch import Tensor

from jagged import checks


class SamplerState(TypedDict):
    """Where a sampler stands: batches handed out in an epoch, and whose state this is."""

    epoch: int
    position: int
    fingerprint: str


class TokenBudgetSampler:
    """Every row once an epoch, in batches of at most `budget` elements: a `batch_sampler`.

    A fixed number of rows makes batches whose work differs tenfold where lengths are skewed; a
    fixed number of elements makes them alike, and is what memory depends on.

    An epoch: rows are permuted by a generator seeded with (seed, epoch), dealt to the length
    buckets in that order, cut greedily into batches, and the batches of all buckets are permuted.
    The same arguments give the same batches on every machine with the same version of torch.

    Args:
        lengths: [B] integers on the CPU, or a sequence of ints: elements of each row; 0 is legal.
        budget: the most elements a batch may have, at least the longest row.
        bucket_bounds: increasing lengths; bucket k holds the rows with `bounds[k-1] < length <=
            bounds[k]`, the last bucket those above the last bound. Batches never mix buckets: what
            a padded consumer wants. Empty: one bucket, each batch is a random sample of the rows.
        max_rows: the most rows in a batch, or None.
        seed: any int.

    Iteration continues from `epoch` and `position`, and ends at the start of the next epoch::

        for _ in range(epochs):
            for rows in sampler:        # rows: list[int]
                ...                     # sampler.state_dict() here: this batch counts as done

    Leaving the loop early and iterating again continues with the next batch of the same epoch,
    and so does a new sampler after `load_state_dict`. Where a `DataLoader` with workers reads
    ahead, the sampler's own position runs ahead too: count the batches that were consumed and put
    that number into the state as its position.

    Raises:
        ValueError: budget or max_rows below 1, a negative length, a row longer than the budget
            (the message names it), bounds that do not increase.
    """

    def __init__(
        self,
        lengths: Tensor | Sequence[int],
        budget: int,
        *,
        bucket_bounds: Sequence[int] = (),
        max_rows: int | None = None,
        seed: int = 0,
    ) -> None:
        given = torch.as_tensor(lengths)
        if given.numel() == 0:  # torch takes [] for floating
            given = given.to(torch.int64)
        if given.ndim != 1 or given.is_floating_point() or given.is_complex():
            raise ValueError(
                f"lengths must be integers [B], got {given.dtype} {checks.shape_of(given)}"
            )
        self.lengths = given.to("cpu", torch.int64)
        self.budget = _at_least_one("budget", budget)
        self.max_rows = None if max_rows is None else _at_least_one("max_rows", max_rows)
        self.bucket_bounds = tuple(_plain(bound) for bound in bucket_bounds)
        self.seed = _plain(seed)
        self.epoch = 0
        self.position = 0
        self._plan: tuple[int, list[Tensor]] | None = None
        if any(b <= a for a, b in zip(self.bucket_bounds, self.bucket_bounds[1:], strict=False)):
            raise ValueError(f"bucket_bounds must increase, got {list(self.bucket_bounds)}")
        if len(self.lengths) > 0:
            if int(self.lengths.min()) < 0:
                row = int(self.lengths.argmin())
                raise ValueError(
                    f"lengths must not be negative, got {int(self.lengths[row])} at row {row}"
                )
            longest = int(self.lengths.argmax())
            if int(self.lengths[longest]) > budget:
                raise ValueError(
                    f"budget must be at least the longest row, got {budget} but row {longest} has "
                    f"{int(self.lengths[longest])} elements: raise it, or cut the rows first"
                )

    def batches(self, epoch: int) -> list[Tensor]:
        """All batches of an epoch: row indices int64 [rows of the batch]. Moves nothing."""
        if self._plan is None or self._plan[0] != epoch:
            self._plan = (epoch, self._make(epoch))
        return self._plan[1]

    def __len__(self) -> int:
        """The number of batches in the current epoch, those already handed out included."""
        return len(self.batches(self.epoch))

    def __iter__(self) -> Iterator[list[int]]:
        epoch = self.epoch
        batches = self.batches(epoch)
        while self.epoch == epoch and self.position < len(batches):
            self.position += 1
            yield batches[self.position - 1].tolist()
        if self.epoch == epoch:
            self.set_epoch(epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        self.epoch = epoch
        self.position = 0

    def state_dict(self) -> SamplerState:
        """Where the sampler stands; only ints and a string, for any kind of checkpoint."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "fingerprint": self._fingerprint,
        }

    def load_state_dict(self, state: SamplerState) -> None:
        """Continue where another sampler with the same arguments stood.

        Raises:
            ValueError: the state is of a sampler with other lengths, budget, buckets or seed.
        """
        if state["fingerprint"] != self._fingerprint:
            raise ValueError(
                "state must come from a sampler with the same lengths, budget, bucket_bounds, "
                f"max_rows and seed, got fingerprint {state['fingerprint']!r} where this one has "
                f"{self._fingerprint!r}: continue with the data and settings of that run"
            )
        self.epoch = state["epoch"]
        self.position = state["position"]

    def _make(self, epoch: int) -> list[Tensor]:
        digest = hashlib.blake2b(f"{self.seed}/{epoch}".encode(), digest_size=8).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
        order = torch.randperm(len(self.lengths), generator=generator)
        bounds = torch.tensor(self.bucket_bounds, dtype=torch.int64)
        bucket = torch.searchsorted(bounds, self.lengths)[order]
        batches: list[Tensor] = []
        for index in range(len(self.bucket_bounds) + 1):
            batches += self._cut(order[bucket == index])
        shuffled = torch.randperm(len(batches), generator=generator).tolist()
        return [batches[index] for index in shuffled]

    def _cut(self, rows: Tensor) -> list[Tensor]:
        """Cut rows, in their order, into the fewest runs that hold budget and max_rows."""
        ends = self.lengths[rows].cumsum(0)
        batches: list[Tensor] = []
        start, used = 0, 0
        while start < len(rows):
            stop = int(torch.searchsorted(ends, used + self.budget, right=True))
            if self.max_rows is not None:
                stop = min(stop, start + self.max_rows)
            batches.append(rows[start:stop])
            used = int(ends[stop - 1])
            start = stop
        return batches

    @functools.cached_property
    def _fingerprint(self) -> str:
        parts = hashlib.blake2b(digest_size=8)
        parts.update(repr((self.budget, self.bucket_bounds, self.max_rows, self.seed)).encode())
        parts.update(repr(self.lengths.tolist()).encode())
        return parts.hexdigest()


def _at_least_one(name: str, value: int) -> int:
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return _plain(value)


def _plain(value: int) -> int:
    """A numpy integer as a Python int: they print differently, and fingerprints and seeds are made
    of the printed number."""
    return int(value) if isinstance(value, numbers.Integral) else value
