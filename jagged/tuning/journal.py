"""What a tuning run has measured so far, so that another run can go on from there."""

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any


class Journal:
    """A file of JSON lines, one a measurement, each on the disk before the next one begins.

    Args:
        path: of the file; it is made where there is none.
        facts: what measurements depend on besides their key (GPU, versions, kernels). Lines that
            were written under other facts are left alone and not used.
    """

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path = path
        self._facts = facts
        self._known: dict[tuple[str, str], float | str] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole, _, broken = text.rpartition("\n")
        current = False
        for number, line in enumerate(filter(None, whole.split("\n")), 1):
            entry = self._entry(line, number)
            if "facts" in entry:
                current = entry["facts"] == facts
            elif current:
                self._known[entry["unit"], entry["config"]] = entry["result"]
        self._file = path.open("a", encoding="utf-8")
        if broken:  # the run before was killed while it wrote this line
            self._file.truncate(len((whole + "\n" if whole else "").encode()))
        if not current:
            self._write({"facts": facts})

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, unit: str, config: str) -> float | str | None:
        """Milliseconds, or why the config was dropped; None where it has not been measured."""
        return self._known.get((unit, config))

    def put(self, unit: str, config: str, result: float | str) -> None:
        """Keep a measurement."""
        self._known[unit, config] = result
        self._write({"unit": unit, "config": config, "result": result})

    def _write(self, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _entry(self, line: str, number: int) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{self.path}, line {number} is no JSON: it is not the journal of a tuning run; "
                "move it or give another folder"
            ) from error
        if not isinstance(entry, dict) or not ({"facts"} <= set(entry) or "unit" in entry):
            raise ValueError(f"{self.path}, line {number} is not of a journal: {line[:80]}")
        return entry
