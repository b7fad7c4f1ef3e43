"""A journal survives what ends a run."""

import errno
import os
from pathlib import Path

import pytest

from jagged.tuning.journal import Journal

FACTS = {"hardware": "a GPU", "kernels": "abc"}


def fill(path: Path) -> None:
    with Journal(path, FACTS) as journal:
        journal.put("unit", "one", 0.25)
        journal.put("unit", "two", "spills 16 bytes")


def test_another_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "journal.jsonl"
    fill(path)
    with Journal(path, FACTS) as journal:
        assert len(journal) == 2
        assert journal.get("unit", "one") == 0.25
        assert journal.get("unit", "two") == "spills 16 bytes"
        assert journal.get("unit", "three") is None
        journal.put("unit", "three", 1.0)
    with Journal(path, FACTS) as journal:
        assert len(journal) == 3


def test_every_measurement_is_on_the_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path, FACTS) as journal:
        journal.put("unit", "one", 0.25)
        assert '"result": 0.25' in path.read_text()


def test_a_line_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    fill(path)
    path.write_text(path.read_text() + '{"unit": "unit", "con')
    with Journal(path, FACTS) as journal:
        assert len(journal) == 2
        journal.put("unit", "three", 1.0)
    with Journal(path, FACTS) as journal:
        assert len(journal) == 3


def test_bytes_that_are_no_text_are_dropped_at_the_end_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    fill(path)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"unit": "\xff\x00')
    with Journal(path, FACTS) as journal:
        assert len(journal) == 2
    assert path.read_bytes() == whole
    path.write_bytes(whole + b"\xff\n")
    with pytest.raises(ValueError, match=r"journal\.jsonl, line 4 is no JSON"):
        Journal(path, FACTS)


def test_a_full_disk_is_named_and_gone_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"

    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(path, FACTS) as journal:
        journal.put("unit", "one", 0.25)
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=rf"{path} cannot be written: .*No space .*goes on"):
            journal.put("unit", "two", 0.5)
        monkeypatch.undo()
    with Journal(path, FACTS) as journal:
        assert journal.get("unit", "one") == 0.25


def test_two_runs_do_not_share_a_journal(tmp_path: Path) -> None:
    """Whose lines would be taken for those of the other's GPU."""
    path = tmp_path / "journal.jsonl"
    with Journal(path, FACTS) as journal:
        with pytest.raises(ValueError, match=rf"another run is writing {path}: wait for it"):
            Journal(path, FACTS | {"hardware": "another GPU"})
        journal.put("unit", "one", 0.25)
    with Journal(path, FACTS) as journal:
        assert journal.get("unit", "one") == 0.25


def test_other_kernels_are_measured_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    fill(path)
    with Journal(path, FACTS | {"kernels": "def"}) as journal:
        assert len(journal) == 0
        journal.put("unit", "one", 0.5)
    with Journal(path, FACTS | {"kernels": "def"}) as journal:
        assert journal.get("unit", "one") == 0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no\njson\n", "line 1 is no JSON"),
        ('{"a": 1}\n', "line 1 is not of a journal"),
        ('{"unit": "unit"}\n', "line 1 is not of a journal"),
        ('{"unit": "unit", "config": "one", "result": [1]}\n', "line 1 is not of a journal"),
        ('{"unit": "unit", "config": "one", "result": true}\n', "line 1 is not of a journal"),
        ("\0\0\n", "line 1 is no JSON"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        Journal(path, FACTS)
    assert path.read_text() == text
