"""A stream of events with what makes real ones hard: few popular items, tastes, long users.

Items follow Zipf's law and belong to a genre. A user likes two genres. The next event is one of
the current item's few usual successors, or something from a liked genre, or anything at all, the
last two by popularity: a popularity list gets part of it, a model of the order more. Lengths are
log-normal: most users are short, a few use the whole length.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from examples.recommender.data import Sequences
from jagged import JaggedTensor

NUM_GENRES = 16
NUM_SUCCESSORS = 4
SUCCESSOR_SHARE = 0.6
GENRE_SHARE = 0.3
ZIPF_EXPONENT = 0.8
MEDIAN_LENGTH = 12.0
LENGTH_SIGMA = 0.9
SHORTEST = 5


def synthetic_sequences(
    num_users: int = 4_000, num_items: int = 3_000, longest: int = 200, seed: int = 0
) -> Sequences:
    """Users with 5 to `longest` events each; the same seed gives the same stream.

    Raises:
        ValueError: fewer items than genres, no user, or `longest` below 5.
    """
    for name, value, least in (
        ("num_users", num_users, 1),
        ("num_items", num_items, NUM_GENRES),
        ("longest", longest, SHORTEST),
    ):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    generator = torch.Generator().manual_seed(seed)
    catalogue = _Catalogue.draw(num_items, generator)
    normal = torch.randn(num_users, generator=generator, dtype=torch.float64)
    lengths = (MEDIAN_LENGTH * (LENGTH_SIGMA * normal).exp()).long().clamp(SHORTEST, longest)
    tastes = torch.randint(NUM_GENRES, (num_users, 2), generator=generator)
    events = torch.zeros(num_users, longest, dtype=torch.int64)
    events[:, 0] = catalogue.from_genre(tastes[:, 0], generator)
    for step in range(1, longest):
        active = (lengths > step).nonzero().squeeze(1)
        events[active, step] = catalogue.after(events[active, step - 1], tastes[active], generator)
    kept = torch.arange(longest) < lengths[:, None]
    rows = JaggedTensor.from_lengths(events[kept], lengths, max_length=longest)
    return Sequences("synthetic", rows, num_items)


@dataclass(frozen=True)
class _Catalogue:
    """The items of the stream.

    Args:
        successors: [num_items, 4], the usual next items of each.
        ends: [NUM_GENRES * num_items] running sum of the popularity of the items of genre 0, then
            of genre 1, ...: a draw is one binary search.
    """

    successors: Tensor
    ends: Tensor

    @classmethod
    def draw(cls, num_items: int, generator: torch.Generator) -> "_Catalogue":
        rank = torch.randperm(num_items, generator=generator)
        item = torch.arange(num_items)
        genre = item % NUM_GENRES  # every genre has items, whatever the draw
        popularity = torch.zeros(NUM_GENRES, num_items, dtype=torch.float64)
        popularity[genre, item] = (rank + 1).double() ** -ZIPF_EXPONENT
        # Any item of the genre may be a usual successor, so that rare items have their readers.
        of_genre = torch.bincount(genre, minlength=NUM_GENRES)[genre, None]
        which = torch.rand(num_items, NUM_SUCCESSORS, generator=generator) * of_genre
        successors = which.long() * NUM_GENRES + genre[:, None]
        return cls(successors, popularity.flatten().cumsum(0))

    def from_genre(self, genres: Tensor, generator: torch.Generator) -> Tensor:
        """[U]: an item of each genre in `genres` [U], by popularity."""
        num_items = self.ends.shape[0] // NUM_GENRES
        last = self.ends[(genres + 1) * num_items - 1]
        first = torch.where(genres > 0, self.ends[genres * num_items - 1], 0.0)
        point = torch.rand(genres.shape[0], generator=generator, dtype=torch.float64)
        drawn = torch.searchsorted(self.ends, first + point * (last - first), right=True)
        return drawn % num_items

    def after(self, current: Tensor, tastes: Tensor, generator: torch.Generator) -> Tensor:
        """[U]: the event after `current` [U] of users with these tastes [U, 2]."""
        users = current.shape[0]
        which = torch.rand(users, generator=generator).clamp(min=1e-9).log2().neg().long()
        liked = tastes[torch.arange(users), torch.randint(2, (users,), generator=generator)]
        anything = torch.randint(NUM_GENRES, (users,), generator=generator)
        kind = torch.rand(users, generator=generator)
        wander = torch.where(kind < SUCCESSOR_SHARE + GENRE_SHARE, liked, anything)
        return torch.where(
            kind < SUCCESSOR_SHARE,
            # Halved from one to the next: the first successor in half of the cases.
            self.successors[current, which.clamp(max=NUM_SUCCESSORS - 1)],
            self.from_genre(wander, generator),
        )
