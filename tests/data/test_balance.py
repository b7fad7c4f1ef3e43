import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jagged.data import BalancedSampler, TokenBudgetSampler, balance_rows, row_costs

COSTS = st.lists(st.integers(0, 50), max_size=30)


def skewed(rows: int, seed: int = 0) -> torch.Tensor:
    """Lengths like those of users: most short, a few up to 512."""
    generator = torch.Generator().manual_seed(seed)
    return (512 * torch.rand(rows, generator=generator) ** 4).long().clamp(min=1)


@given(costs=COSTS, parts=st.integers(1, 9))
def test_every_row_is_in_one_part_and_no_part_far_above_the_mean(
    costs: list[int], parts: int
) -> None:
    dealt = [part.tolist() for part in balance_rows(costs, parts)]
    assert len(dealt) == parts
    assert sorted(itertools.chain(*dealt)) == list(range(len(costs)))
    assert all(part == sorted(part) for part in dealt)
    loads = [sum(costs[row] for row in part) for part in dealt]
    assert max(loads) <= sum(costs) / parts + max(costs, default=0)
    if len(costs) >= parts and min(costs, default=0) > 0:
        assert all(dealt)


@given(costs=st.lists(st.integers(1, 20), min_size=1, max_size=7), parts=st.integers(2, 3))
def test_within_a_third_of_the_best(costs: list[int], parts: int) -> None:
    def heaviest(owner: tuple[int, ...]) -> int:
        return max(
            sum(c for c, o in zip(costs, owner, strict=True) if o == part) for part in range(parts)
        )

    best = min(map(heaviest, itertools.product(range(parts), repeat=len(costs))))
    loads = [sum(costs[row] for row in part.tolist()) for part in balance_rows(costs, parts)]
    assert max(loads) <= best * (4 / 3 - 1 / (3 * parts)) + 1e-9


@pytest.mark.parametrize("ranks", [8, 64, 1024])
def test_skewed_lengths_come_out_even(ranks: int) -> None:
    lengths = skewed(16 * ranks)
    costs = row_costs(lengths, 1 / 1280)
    loads = torch.stack([costs[part].sum() for part in balance_rows(costs, ranks)])
    assert loads.max() < 1.01 * loads.mean()
    equal_rows = costs.reshape(ranks, 16).sum(1)
    assert equal_rows.max() > 1.3 * equal_rows.mean()


def test_costs() -> None:
    assert row_costs(torch.tensor([0, 1, 10], dtype=torch.int32), 0.5).tolist() == [0, 1.5, 60]


def test_all_ranks_make_the_same_parts_of_the_same_batches() -> None:
    lengths = skewed(500)
    of_rank = [
        list(BalancedSampler(TokenBudgetSampler(lengths, 2048, seed=4), rank, 3, square=0.01))
        for rank in range(3)
    ]
    whole = list(TokenBudgetSampler(lengths, 2048, seed=4))
    assert len(whole) == len(BalancedSampler(TokenBudgetSampler(lengths, 2048), 0, 3, square=0.0))
    for batch, *parts in zip(whole, *of_rank, strict=True):
        assert sorted(itertools.chain(*parts)) == sorted(batch)
        for part in parts:
            assert part == [row for row in batch if row in part]


def test_one_rank_gets_the_batches_as_they_are() -> None:
    lengths = skewed(200)
    alone = BalancedSampler(TokenBudgetSampler(lengths, 2048), 0, 1, square=0.01)
    assert list(alone) == list(TokenBudgetSampler(lengths, 2048))


@pytest.mark.parametrize("ranks", [2, 5])
def test_goes_on_in_mid_epoch_with_any_number_of_ranks(ranks: int) -> None:
    lengths = skewed(300)

    def sampler(rank: int, ranks: int) -> BalancedSampler:
        return BalancedSampler(TokenBudgetSampler(lengths, 1024, seed=1), rank, ranks, square=0.01)

    first = sampler(0, 2)
    first.set_epoch(3)
    iterator = iter(first)
    for _ in range(4):
        next(iterator)
    resumed = []
    for rank in range(ranks):
        one = sampler(rank, ranks)
        one.load_state_dict(first.state_dict())
        resumed.append(list(one))
        assert one.state_dict()["epoch"] == 4
    rest = [batch.tolist() for batch in TokenBudgetSampler(lengths, 1024, seed=1).batches(3)[4:]]
    together = [sorted(itertools.chain(*parts)) for parts in zip(*resumed, strict=True)]
    assert together == [sorted(batch) for batch in rest]


def test_errors() -> None:
    batches = TokenBudgetSampler([1, 2], 5)
    with pytest.raises(ValueError, match="parts must be at least 1, got 0"):
        balance_rows([1.0], 0)
    with pytest.raises(ValueError, match=r"finite and not negative, got -2\.0 at row 1"):
        balance_rows([1.0, -2.0], 2)
    with pytest.raises(ValueError, match="finite and not negative, got nan at row 0"):
        balance_rows([float("nan")], 2)
    with pytest.raises(ValueError, match=r"one-dimensional \[B\], got shape \[2, 3\]"):
        balance_rows(torch.ones(2, 3), 2)
    with pytest.raises(ValueError, match="ranks must be at least 1, got 0"):
        BalancedSampler(batches, 0, 0, square=0.0)
    with pytest.raises(ValueError, match=r"rank must be in 0\.\.1 of 2 ranks, got 2"):
        BalancedSampler(batches, 2, 2, square=0.0)
    with pytest.raises(ValueError, match="square must be finite and not negative, got -1"):
        BalancedSampler(batches, 0, 2, square=-1.0)
