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
