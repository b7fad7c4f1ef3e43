import math

import torch
from torch import Tensor

from examples.recommender.baselines import Popularity
from examples.recommender.data import HeldOut
from examples.recommender.evaluate import Metrics, evaluate, metrics_of_ranks, target_ranks
from jagged import JaggedTensor


def brute_force(scores: Tensor, targets: Tensor) -> Metrics:
    """Sort every list, look for the target in the first ten."""
    hits, gains = 0.0, 0.0
    for row, target in zip(scores.tolist(), targets.tolist(), strict=True):
        ranking = sorted(range(len(row)), key=lambda item, row=row: -row[item])[:10]
        if target in ranking:
            hits += 1
            gains += 1 / math.log2(ranking.index(target) + 2)
    return Metrics(hits / len(targets), gains / len(targets))


def test_against_brute_force() -> None:
    scores = torch.randn(200, 37)
    targets = torch.randint(37, (200,))
    found, expected = metrics_of_ranks(target_ranks(scores, targets)), brute_force(scores, targets)
    assert found.hit_rate == expected.hit_rate
    assert math.isclose(found.ndcg, expected.ndcg, rel_tol=1e-12)


def test_ranks_by_hand() -> None:
    scores = torch.tensor([[3.0, 1.0, 2.0], [0.0, 0.0, 0.0], [1.0, torch.nan, 0.0]])
    assert target_ranks(scores, torch.tensor([2, 1, 0])).tolist() == [1, 2, 1]
    assert target_ranks(scores, torch.tensor([0, 0, 1])).tolist() == [0, 2, 2]


def test_gains_by_hand() -> None:
    found = metrics_of_ranks(torch.tensor([0, 1, 9, 10]))
    assert found.hit_rate == 0.75
    assert math.isclose(found.ndcg, (1 + 1 / math.log2(3) + 1 / math.log2(11)) / 4)
    assert str(found) == f"HR@10 0.7500  NDCG@10 {found.ndcg:.4f}"


def test_batches_of_all_sizes_and_the_order_of_users() -> None:
    lengths = torch.tensor([5, 1, 3, 2, 4])
    history = JaggedTensor.from_lengths(torch.arange(15), lengths, max_length=5)
    last = history.offsets[1:] - 1
    # The right item scores highest for users 0, 2 and 3; for the others everything ties.
    targets = torch.tensor([4, 1, 8, 10, 0])
    right = torch.tensor([True, False, True, True, False])

    def scores(rows: JaggedTensor) -> Tensor:
        assert rows.max_length == int(rows.lengths().max())
        ends = rows.values[rows.offsets[1:] - 1]
        out = torch.zeros(len(rows), 1_000_000)
        for index, end in enumerate(ends.tolist()):
            user = history.values[last].tolist().index(end)
            if right[user]:
                out[index, targets[user]] = 1.0
        return out

    # 1,000,000 items leave room for two users in a batch.
    found = evaluate(scores, HeldOut(history, targets), num_items=1_000_000)
    assert found == Metrics(0.6, 0.6)


def test_popularity_ranks_by_count_without_ties() -> None:
    scores = Popularity(torch.tensor([2, 7, 2, 0])).scores(
        JaggedTensor.from_lengths(torch.tensor([3, 3]), torch.tensor([1, 1]))
    )
    assert scores.shape == (2, 4)
    assert scores[0].argsort(descending=True).tolist() == [1, 0, 2, 3]
    assert scores[0].unique().shape == (4,)
