import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jagged.data import TokenBudgetSampler

LENGTHS = st.lists(st.integers(0, 20), max_size=40)
BOUNDS = st.lists(st.integers(0, 20), max_size=3, unique=True).map(sorted)


@given(
    lengths=LENGTHS,
    extra=st.integers(0, 30),
    bounds=BOUNDS,
    max_rows=st.none() | st.integers(1, 5),
    seed=st.integers(-5, 5),
)
def test_every_row_once_within_all_limits(
    lengths: list[int], extra: int, bounds: list[int], max_rows: int | None, seed: int
) -> None:
    budget = max([*lengths, 1]) + extra
    sampler = TokenBudgetSampler(
        lengths, budget, bucket_bounds=bounds, max_rows=max_rows, seed=seed
    )
    for _ in range(2):
        announced = len(sampler)
        batches = list(sampler)
        assert len(batches) == announced
        assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
        for batch in batches:
            assert len(batch) > 0
            assert sum(lengths[row] for row in batch) <= budget
            assert max_rows is None or len(batch) <= max_rows
            buckets = {sum(lengths[row] > bound for bound in bounds) for row in batch}
            assert len(buckets) == 1


@given(lengths=LENGTHS, stop=st.integers(0, 20), epoch=st.integers(0, 3))
def test_resumes_anywhere(lengths: list[int], stop: int, epoch: int) -> None:
    whole = TokenBudgetSampler(lengths, 25, seed=3)
    whole.set_epoch(epoch)
    this_epoch, next_epoch = list(whole), list(whole)

    first = TokenBudgetSampler(lengths, 25, seed=3)
    first.set_epoch(epoch)
    stop = min(stop, len(this_epoch))
    iterator = iter(first)
    begun = [next(iterator) for _ in range(stop)]
    second = TokenBudgetSampler(torch.tensor(lengths, dtype=torch.int64), 25, seed=3)
    second.load_state_dict(first.state_dict())
    assert begun + list(second) == this_epoch
    assert second.state_dict()["epoch"] == epoch + 1
    assert list(second) == next_epoch


def test_goes_on_where_a_loop_was_left() -> None:
    sampler = TokenBudgetSampler([1] * 10, 2)
    whole = list(TokenBudgetSampler([1] * 10, 2))
    for batch in sampler:
        assert batch == whole[0]
        break
    assert list(sampler) == whole[1:]
    assert (sampler.epoch, sampler.position) == (1, 0)


def test_a_jump_inside_a_loop_ends_it() -> None:
    sampler = TokenBudgetSampler([1] * 10, 2)
    for _ in sampler:
        sampler.set_epoch(5)
    assert (sampler.epoch, sampler.position) == (5, 0)


def test_epochs_and_seeds_differ() -> None:
    def order(seed: int, epoch: int) -> list[list[int]]:
        sampler = TokenBudgetSampler([1] * 100, 10, seed=seed)
        return [batch.tolist() for batch in sampler.batches(epoch)]

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 1) != order(1, 0)


def test_batches_are_filled() -> None:
    lengths = torch.randint(1, 50, (2_000,))
    sampler = TokenBudgetSampler(lengths, 1_000)
    # Greedy: a batch stops only because the next row, below 50, does not fit.
    full = [int(lengths[batch].sum()) > 950 for batch in sampler.batches(0)]
    assert full.count(False) <= 1


def test_does_not_touch_the_global_generator() -> None:
    before = torch.get_rng_state()
    list(TokenBudgetSampler([1, 2, 3], 3))
    assert torch.equal(torch.get_rng_state(), before)


def test_errors() -> None:
    with pytest.raises(ValueError, match="got 5 but row 1 has 6 elements"):
        TokenBudgetSampler([1, 6], 5)
    with pytest.raises(ValueError, match="budget must be at least 1, got 0"):
        TokenBudgetSampler([], 0)
    with pytest.raises(ValueError, match="max_rows must be at least 1, got 0"):
        TokenBudgetSampler([1], 1, max_rows=0)
    with pytest.raises(ValueError, match="lengths must not be negative, got -2 at row 1"):
        TokenBudgetSampler([1, -2], 5)
    with pytest.raises(ValueError, match=r"bucket_bounds must increase, got \[4, 4\]"):
        TokenBudgetSampler([1], 5, bucket_bounds=[4, 4])
    with pytest.raises(ValueError, match=r"lengths must be integers \[B\], got torch.float32"):
        TokenBudgetSampler(torch.ones(2), 5)
    with pytest.raises(ValueError, match=r"lengths must be integers \[B\], got torch.complex64"):
        TokenBudgetSampler(torch.ones(2) + 0j, 5)
    for budget in ("5", None):
        with pytest.raises(TypeError, match=r"budget must be a number, got (str|NoneType)"):
            TokenBudgetSampler([1], budget)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_the_same_settings() -> None:
    plain = TokenBudgetSampler([1, 2, 3], 5, bucket_bounds=[2], max_rows=2, seed=3)
    bounds = numpy.array([2])
    two, three, five = (numpy.int64(n) for n in (2, 3, 5))
    other = TokenBudgetSampler([1, 2, 3], five, bucket_bounds=bounds, max_rows=two, seed=three)  # type: ignore[arg-type]
    other.load_state_dict(plain.state_dict())
    assert list(other) == list(plain)


def test_refuses_a_state_of_something_else() -> None:
    state = TokenBudgetSampler([1, 2, 3], 5).state_dict()
    others = (
        TokenBudgetSampler([1, 2, 4], 5),
        TokenBudgetSampler([1, 2, 3], 6),
        TokenBudgetSampler([1, 2, 3], 5, seed=1),
        TokenBudgetSampler([1, 2, 3], 5, max_rows=2),
        TokenBudgetSampler([1, 2, 3], 5, bucket_bounds=[2]),
    )
    for other in others:
        with pytest.raises(
            ValueError, match="state must come from a sampler with the same lengths"
        ):
            other.load_state_dict(state)
