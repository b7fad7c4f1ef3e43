"""What a trainer makes of a batch before the model sees it."""

from pathlib import Path

import pytest
import torch

from examples.recommender.baselines import PaddedSASRec
from examples.recommender.data import Split, leave_one_out
from examples.recommender.distributed import World
from examples.recommender.model import NextItemModel
from examples.recommender.settings import Settings
from examples.recommender.synthetic import synthetic_sequences
from examples.recommender.train import Trainer


@pytest.fixture(scope="module")
def split() -> Split:
    return leave_one_out(synthetic_sequences(40, 50), 10)


def trainer(split: Split, folder: Path, world: World, **changes: object) -> Trainer:
    settings = Settings(width=8, max_length=10, token_budget=64, **changes)  # type: ignore[arg-type]
    model = NextItemModel(PaddedSASRec(settings), split.seen, settings)
    return Trainer("sasrec", model, split, settings, folder, torch.device("cpu"), world)


def test_negatives_are_the_same_on_every_process_and_new_in_every_step(
    split: Split, tmp_path: Path
) -> None:
    first, second = (
        trainer(split, tmp_path, World(rank, 2), negatives=999, loss="uniform") for rank in (0, 1)
    )
    of_first = first._negatives([0, 1])
    assert of_first is not None
    assert set(of_first.tolist()) == set(range(split.num_items))
    torch.manual_seed(5)  # whatever else was drawn
    assert torch.equal(of_first, second._negatives([2]))
    first.step += 1
    assert not torch.equal(of_first, first._negatives([0, 1]))


def test_in_batch_negatives_are_targets_of_the_global_batch(split: Split, tmp_path: Path) -> None:
    one = trainer(split, tmp_path, World(), negatives=20_000, loss="in-batch")
    rows = [3, 0, 17, 3]
    targets = [target for row in rows for target in _targets(split, row)]
    drawn = one._negatives(rows)
    assert drawn is not None
    expected = torch.bincount(torch.tensor(targets), minlength=50) / len(targets)
    shares = torch.bincount(drawn, minlength=50) / len(drawn)
    assert set(drawn.tolist()) == set(targets)
    torch.testing.assert_close(shares, expected, rtol=0.0, atol=0.02)


def test_the_full_loss_needs_no_negatives(split: Split, tmp_path: Path) -> None:
    assert trainer(split, tmp_path, World(), loss="full")._negatives([0]) is None


def _targets(split: Split, row: int) -> list[int]:
    assert split.train.weights is not None
    start, end = split.train.offsets[row : row + 2].tolist()
    return split.train.weights[start:end].tolist()
