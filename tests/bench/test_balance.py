import time

import pytest
import torch

from bench import balance


def test_balancing_evens_out_what_equal_rows_and_elements_do_not() -> None:
    over = balance.slowest(ranks=16, rows=32, steps=2)
    assert 1.0 <= over["balanced"] < 1.005
    assert over["balanced"] < over["told half"] < 1.1
    assert 1.0 < over["equal elements"] < over["equal rows"]
    assert over["equal rows"] > 1.3


@pytest.mark.parametrize("way", balance.WAYS.values(), ids=balance.WAYS)
def test_ways_give_each_rank_rows(way: object) -> None:
    lengths = balance.skewed_lengths(320, torch.Generator().manual_seed(1))
    assert callable(way)
    parts = way(lengths, 8)
    assert len(parts) == 8
    rows = torch.cat(parts)
    assert len(rows.unique()) == len(rows)
    assert len(rows) > 300


def test_prints_a_row_a_number_of_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    balance.main(["--ranks", "2", "4", "--rows", "3", "--steps", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[2].split()[:2] == ["2", "3"]
    assert lines[3].split()[-1] == "ms"


CPU = torch.device("cpu")


def test_measures_each_share_on_the_batches_that_are_predicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []

    def times(shares: list[object], device: torch.device) -> list[float]:
        calls.append(len(shares))
        return [1.0, 3.0, 4.0, 4.0, 2.0, 2.0, 5.0, 15.0]

    monkeypatch.setattr(balance, "milliseconds_of", times)
    found = balance.spreads(balance.Step(16, CPU), ranks=2, rows=8, steps=2)
    assert calls == [8]
    assert found["equal rows"].measured == pytest.approx((3 / 2 + 4 / 4) / 2)
    assert found["equal rows"].slowest_ms == pytest.approx((3 + 4) / 2)
    assert found["balanced"].measured == pytest.approx((2 / 2 + 15 / 10) / 2)
    assert found["balanced"].slowest_ms == pytest.approx((2 + 15) / 2)
    assert 1.0 <= found["balanced"].predicted < found["equal rows"].predicted


def test_a_step_learns_from_rows_of_its_lengths() -> None:
    step = balance.Step(16, CPU)
    before = [parameter.detach().clone() for parameter in step.stack.parameters()]
    seen: list[tuple[int, int]] = []
    step.stack.register_forward_hook(lambda _, x, out: seen.append((len(x[0]), len(out.values))))
    for call in step.calls([torch.tensor([3, 16]), torch.tensor([5, 1, 1])]):
        call()
    assert seen == [(2, 19), (3, 7)]
    after = list(step.stack.parameters())
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert all(parameter.grad is not None for parameter in after)


def test_the_time_of_a_call_is_the_median_of_three_turns() -> None:
    order: list[str] = []
    naps = iter([0.0, 0.05, 0.001, 0.001])

    def napping() -> None:
        order.append("naps")
        time.sleep(next(naps))

    slow, fast = balance.milliseconds_of([napping, lambda: order.append("quick")], CPU)
    assert order == ["naps", "quick"] * 4
    assert fast < 1.0 <= slow < 40.0


def test_prints_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    balance.main(["--measure", "--cpu", "--ranks", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[3:]] == [["16", "2", "8"], ["32", "2", "4"]]
    for line in lines[3:]:
        numbers = [float(number) for number in line.rstrip("x").split()[3:]]
        assert len(numbers) == 7
        assert min(numbers) > 0
        assert numbers[6] == pytest.approx(numbers[2] / numbers[5], abs=0.02)
