"""The stopwatch and its helpers, on the CPU."""

import time

import pytest
import torch

from jagged.tuning.timing import Stopwatch, host_cost, peak_memory, quantile


def test_quantiles_are_linear_between_neighbours() -> None:
    values = [4.0, 1.0, 3.0, 2.0, 5.0]
    assert quantile(values, 0.5) == 3.0
    assert quantile(values, 0.2) == pytest.approx(1.8)
    assert quantile(values, 0.8) == pytest.approx(4.2)
    assert quantile([7.0], 0.8) == 7.0
    with pytest.raises(ValueError, match="at least one number"):
        quantile([], 0.5)


def test_a_call_is_timed_and_its_quantiles_are_ordered() -> None:
    timing = Stopwatch("cpu", budget_ms=30).time(lambda: time.sleep(0.002))
    assert 2.0 <= timing.p20 <= timing.p50 <= timing.p80 < 60.0
    assert timing.samples >= 3
    assert timing.host_us >= 2000


def test_calls_take_turns_and_who_begins_rotates() -> None:
    order: list[str] = []
    stopwatch = Stopwatch("cpu", budget_ms=1e9, fewest=4, most=4)
    stopwatch.compare([lambda name=name: order.append(name) for name in "abc"])  # type: ignore[misc]
    assert "".join(order[-12:]) == "abcbcacababc"


def test_a_call_that_raises_has_its_exception_in_its_place() -> None:
    calls = 0

    def later() -> None:
        nonlocal calls
        calls += 1
        if calls > 8:
            raise RuntimeError("worn out")

    def never() -> None:
        raise ValueError("broken from the start")

    stopwatch = Stopwatch("cpu", budget_ms=1e9, fewest=10, most=10)
    good, bad, worn = stopwatch.compare([lambda: None, never, later])
    assert not isinstance(good, Exception)
    assert good.samples == 10
    assert isinstance(bad, ValueError)
    assert isinstance(worn, RuntimeError)
    with pytest.raises(ValueError, match="broken from the start"):
        stopwatch.time(never)


def test_nothing_to_compare() -> None:
    assert Stopwatch("cpu").compare([]) == []


def test_the_host_cost_is_the_median_of_single_calls() -> None:
    naps = [0.0, 0.003, 0.0, 0.003, 0.003]
    calls = [lambda nap=nap: time.sleep(nap) for nap in naps]  # type: ignore[misc]
    assert host_cost(calls, "cpu") >= 3000


def test_the_cpu_has_no_peak_memory_and_can_be_warmed() -> None:
    assert peak_memory(lambda: torch.ones(10), "cpu") is None
    Stopwatch("cpu").warm(0.01)
