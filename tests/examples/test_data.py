from pathlib import Path

import pytest
import torch

from examples.recommender.data import Rows, Sequences, leave_one_out, read_sequences
from examples.recommender.synthetic import synthetic_sequences
from jagged import JaggedTensor


def sequences(*rows: list[int]) -> Sequences:
    values = torch.tensor([item for row in rows for item in row], dtype=torch.int64)
    lengths = torch.tensor([len(row) for row in rows])
    return Sequences("made", JaggedTensor.from_lengths(values, lengths), int(values.max()) + 1)


def lists(rows: JaggedTensor) -> list[list[int]]:
    return [row.tolist() for row in rows.validate().rows()]


def test_reads_the_format(tmp_path: Path) -> None:
    file = tmp_path / "events.txt"
    file.write_text("1 10 7 10\n\n  5\t900000000000\r\n2 7 8")
    found = read_sequences(file)
    assert found.name == "events"
    assert found.num_items == 4
    # Items are numbered in the order of their identifiers: 7, 8, 10, 900000000000.
    assert lists(found.rows) == [[2, 0, 2], [3], [0, 1]]
    assert found.rows.max_length == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3\n2 x 4\n", r"events\.txt, line 2: .* non-negative integers .* got 'x'"),
        ("1 2 -3\n", r"line 1: .* got '-3'"),
        ("1 2,3\n", r"line 1: .* got '2,3'"),
        ("1 2 ³\n", r"line 1: .* got '³'"),
        ("1 2 3.0\n", r"line 1: .* got '3\.0'"),
        ("1 2\n7\n", r"line 2: user 7 must have at least one item, got none"),
        ("1 2\n3 4\n1 5\n", r"line 3: user 1 must have one line, got another in line 1"),
        ("1 9223372036854775808\n", r"line 1: identifiers must be below 2\*\*63"),
        ("\n \n", r"events\.txt must have a line .* for each user, got no line"),
    ],
)
def test_malformed_files(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "events.txt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_sequences(file)


def test_leave_one_out() -> None:
    split = leave_one_out(sequences([0, 1, 2, 3, 4, 5], [6, 5], [4, 3, 2], [1, 2, 3, 0]), 50)
    assert split.skipped == 1
    assert split.num_items == 7
    # The user with three items has one for training, which nothing follows.
    assert lists(split.train) == [[0, 1, 2], [1]]
    assert split.train.weights is not None
    assert lists(split.train.with_values(split.train.weights)) == [[1, 2, 3], [2]]
    assert lists(split.validation.history) == [[0, 1, 2, 3], [4], [1, 2]]
    assert split.validation.target.tolist() == [4, 3, 3]
    assert lists(split.test.history) == [[0, 1, 2, 3, 4], [4, 3], [1, 2, 3]]
    assert split.test.target.tolist() == [5, 2, 0]
    assert split.seen.tolist() == [1, 2, 2, 1, 1, 0, 0]


def test_the_newest_events_are_kept() -> None:
    split = leave_one_out(sequences([0, 1, 2, 3, 4, 5, 6]), 2)
    assert lists(split.train) == [[2, 3]]
    assert split.train.weights is not None
    assert split.train.weights.tolist() == [3, 4]
    assert lists(split.validation.history) == [[3, 4]]
    assert lists(split.test.history) == [[4, 5]]
    assert split.seen.tolist() == [1, 1, 1, 1, 1, 0, 0]


def test_data_that_cannot_be_split() -> None:
    with pytest.raises(ValueError, match=r"users with at least 3 items.* the longest of 2 has 2"):
        leave_one_out(sequences([0, 1], [1]), 50)
    with pytest.raises(ValueError, match=r"users with at least 4 items.* the longest of 1 has 3"):
        leave_one_out(sequences([0, 1, 1]), 50)
    with pytest.raises(ValueError, match="max_length must be at least 1, got 0"):
        leave_one_out(sequences([0, 1, 2, 3]), 0)


def test_the_fingerprint_follows_the_data() -> None:
    def fingerprint(*rows: list[int]) -> str:
        return leave_one_out(sequences(*rows), 50).fingerprint

    assert fingerprint([0, 1, 2, 3], [0, 1, 2]) == fingerprint([0, 1, 2, 3], [0, 1, 2])
    assert fingerprint([0, 1, 2, 3], [0, 1, 2]) != fingerprint([0, 1, 2, 3], [0, 2, 1])
    assert fingerprint([0, 1, 2, 3], [0, 1, 2]) != fingerprint([0, 1, 2], [3, 0, 1, 2])


def test_a_batch_knows_its_longest_row() -> None:
    split = leave_one_out(sequences([0, 1, 2, 3, 4, 5], [4, 3, 2, 1], [1, 2, 3, 0, 1]), 50)
    batch = Rows(split.train).take([1, 2])
    assert batch.max_length == 2
    assert lists(batch) == [[4], [1, 2]]
    assert batch.weights is not None
    assert batch.weights.tolist() == [3, 2, 3]


def test_the_synthetic_stream_is_seeded() -> None:
    first, again, other = (synthetic_sequences(50, 40, 30, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.rows.values, again.rows.values)
    assert torch.equal(first.rows.offsets, again.rows.offsets)
    assert not torch.equal(first.rows.values[:100], other.rows.values[:100])


def test_the_synthetic_stream_looks_real() -> None:
    stream = synthetic_sequences(2_000, 400, 200)
    stream.rows.validate()
    lengths = stream.rows.lengths().double()
    assert lengths.min() == 5
    assert lengths.max() > 5 * lengths.median()
    assert stream.rows.values.min() >= 0
    assert stream.rows.values.max() < 400
    counts = torch.bincount(stream.rows.values, minlength=400).sort(descending=True).values
    assert counts[:40].sum() > 0.2 * counts.sum()
    # What follows an item is far from independent of it: the most usual successor stands out.
    pairs = torch.zeros(400, 400)
    row = stream.rows.row_ids()
    inside = row[1:] == row[:-1]
    before, after = stream.rows.values[:-1][inside], stream.rows.values[1:][inside]
    pairs.index_put_((before, after), torch.ones(1), accumulate=True)
    assert (pairs.amax(1).sum() / pairs.sum()) > 3 * counts[0] / counts.sum()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 100, 50), "num_users must be at least 1, got 0"),
        ((5, 3, 50), "num_items must be at least 16, got 3"),
        ((5, 100, 4), "longest must be at least 5, got 4"),
    ],
)
def test_synthetic_errors(arguments: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        synthetic_sequences(*arguments)
