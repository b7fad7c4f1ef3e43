"""The README's example runs as it stands, and its links point at files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("10000\n11000\n11100\n01110\n00111\n")
    assert "JaggedTensor(3 rows, 5 elements x 8" in printed


def test_it_is_short_and_its_targets_exist() -> None:
    assert len(TEXT.splitlines()) <= 160
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z]+)", TEXT)) <= targets
    for path in re.findall(r"`((?:jagged|bench|tests|modules)/[\w/]+\.py)`", TEXT):
        assert (ROOT / path).exists() or path.endswith("x.py"), path
