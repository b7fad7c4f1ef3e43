"""Event sequences: the text format, and the leave-one-out split.

The format is one user a line, oldest event first: `user item item item ...`, all non-negative
integers between blanks. Items may have any numbers: inside the program they are 0..num_items-1.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from jagged import JaggedTensor

LARGEST_ID = 2**63 - 1


@dataclass(frozen=True)
class Sequences:
    """The events of every user, oldest first.

    Args:
        name: what to call this data in reports.
        rows: items 0..num_items-1 of each user.
        num_items: the number of different items.
    """

    name: str
    rows: JaggedTensor
    num_items: int


@dataclass(frozen=True)
class HeldOut:
    """Users to evaluate: what is known of each, and the item that came next.

    Args:
        history: B rows of items, none of them empty.
        target: [B] int64.
    """

    history: JaggedTensor
    target: Tensor


@dataclass(frozen=True)
class Split:
    """Leave-one-out: a user's last item is for the test, the last but one for validation.

    Args:
        train: rows of input items, none empty; `weights` holds for each the item after it.
        seen: [num_items] int64, how often each item occurs in the training part.
        validation, test: every user's history before the held-out item, and that item.
        num_items: the number of different items in all parts.
        skipped: users with fewer than 3 items, who cannot be split and take no part.
        fingerprint: changes whenever the data does.
    """

    train: JaggedTensor
    seen: Tensor
    validation: HeldOut
    test: HeldOut
    num_items: int
    skipped: int
    fingerprint: str


def read_sequences(path: Path) -> Sequences:
    """Read a file of event sequences.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is malformed; the message names file, line and what is wrong with it.
    """
    lengths: list[int] = []
    items: list[int] = []
    first_line: dict[int, int] = {}
    for number, line in _lines(path):
        words = line.split()
        if not words:
            continue
        where = f"{path}, line {number}"
        user, *row = (_identifier(word, where) for word in words)
        if not row:
            raise ValueError(f"{where}: user {user} must have at least one item, got none")
        if user in first_line:
            raise ValueError(
                f"{where}: user {user} must have one line, got another in line "
                f"{first_line[user]}: join their items, oldest first"
            )
        first_line[user] = number
        lengths.append(len(row))
        items += row
    if not lengths:
        raise ValueError(f"{path} must have a line `user item item ...` for each user, got no line")
    known, values = torch.unique(torch.tensor(items), return_inverse=True)
    rows = JaggedTensor.from_lengths(values, torch.tensor(lengths), max_length=max(lengths))
    return Sequences(path.stem, rows, len(known))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers, from 1."""
    with path.open(encoding="utf-8") as file:
        try:
            yield from enumerate(file, start=1)
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} must be text in UTF-8, got {error}") from error


def _identifier(word: str, where: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise ValueError(
            f"{where}: users and items must be non-negative integers between blanks, got {word!r}"
        )
    value = int(word)
    if value > LARGEST_ID:
        raise ValueError(f"{where}: identifiers must be below 2**63, got {word}")
    return value


def leave_one_out(sequences: Sequences, max_length: int) -> Split:
    """Split the events of every user; histories and training rows keep the newest `max_length`.

    Raises:
        ValueError: no user has 4 items, or max_length is below 1.
    """
    if max_length < 1:
        raise ValueError(f"max_length must be at least 1, got {max_length}")
    lengths = sequences.rows.lengths()
    usable = lengths >= 3
    if not bool(usable.any()):
        raise ValueError(
            f"{sequences.name} must have users with at least 3 items (for training, validation and "
            f"test), the longest of {len(lengths)} has {int(lengths.max())}"
        )
    rows = sequences.rows.select(usable)
    values, ends = rows.values, rows.offsets[1:]
    lengths = rows.lengths()
    # A training row of n items gives n - 1 inputs, each with the item after it as its target.
    inputs = (lengths - 3).clamp(max=max_length)
    trained = inputs > 0
    if not bool(trained.any()):
        raise ValueError(
            f"{sequences.name} must have users with at least 4 items, one step to train on besides "
            f"validation and test, the longest of {len(lengths)} has {int(lengths.max())}"
        )
    seen = torch.bincount(values[_before(rows, 2)], minlength=sequences.num_items)
    train = JaggedTensor.from_lengths(
        _windows(values, (ends - 3)[trained], inputs[trained]),
        inputs[trained],
        max_length=max_length,
        weights=_windows(values, (ends - 2)[trained], inputs[trained]),
    )
    known = [(lengths - held).clamp(max=max_length) for held in (2, 1)]
    validation, test = (
        HeldOut(
            JaggedTensor.from_lengths(
                _windows(values, ends - held, length), length, max_length=max_length
            ),
            values[ends - held],
        )
        for held, length in zip((2, 1), known, strict=True)
    )
    digest = hashlib.sha256(values.numpy().tobytes())
    digest.update(rows.offsets.numpy().tobytes())
    return Split(
        train=train,
        seen=seen,
        validation=validation,
        test=test,
        num_items=sequences.num_items,
        skipped=len(usable) - len(rows),
        fingerprint=digest.hexdigest(),
    )


class Rows:
    """Rows that lie whole on the device where batches are made of them, lengths on the host too.

    Args:
        rows: on the CPU.
        device: where the batches are wanted.
    """

    def __init__(self, rows: JaggedTensor, device: torch.device | str = "cpu") -> None:
        self.lengths = rows.lengths()
        self.rows = rows.to(device)

    def take(self, indices: Tensor | Sequence[int]) -> JaggedTensor:
        """The rows of a batch, with the longest of them as `max_length`; never waits for a GPU.

        `indices` are on the host.
        """
        index = torch.as_tensor(indices, dtype=torch.int64)
        lengths = self.lengths[index]
        batch = self.rows.select(
            index.to(self.rows.values.device, non_blocking=True), total=int(lengths.sum())
        )
        longest = int(lengths.max()) if len(index) > 0 else 0
        return JaggedTensor(batch.values, batch.offsets, longest, batch.weights)


def _before(rows: JaggedTensor, held: int) -> Tensor:
    """[T] bool: elements that are not among the last `held` of their row."""
    row = rows.row_ids()
    return torch.arange(rows.values.shape[0]) < rows.offsets[1:][row] - held


def _windows(values: Tensor, ends: Tensor, lengths: Tensor) -> Tensor:
    """The `lengths[i]` elements of `values` that end before `ends[i]`, row after row."""
    starts = ends - lengths
    first = lengths.cumsum(0) - lengths
    shift = torch.repeat_interleave(starts - first, lengths)
    return values[torch.arange(shift.shape[0]) + shift]
