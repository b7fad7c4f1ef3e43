"""The example reads every row and says how fast; no test depends on how fast."""

import pytest

from examples import read_parquet


def test_every_way_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    speeds = read_parquet.main(rows=20_000)
    assert set(speeds) == {"in_arrow", "for_training", "row_by_row"}
    assert min(speeds.values()) > 0
    assert capsys.readouterr().out.count("M rows/s") == 3
