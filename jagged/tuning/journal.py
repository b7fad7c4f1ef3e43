"""What a tuning run has measured so far, so that another run can go on from there."""

import fcntl
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

    Raises:
        ValueError: another run has it open, or the file holds something else.
    """

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path = path
        self._facts = facts
        self._known: dict[tuple[str, str], float | str] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        try:
            self._lock()
            if not self._read():
                self._write({"facts": facts})
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        """Until the file is closed, by whatever ends the process: lines of two runs, of which each
        holds under the facts before it, would not be told apart."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(
                f"another run is writing {self.path}: wait for it, or give another folder"
            ) from error

    def _read(self) -> bool:
        """Take over what is there; whether new lines would hold under the facts of this run."""
        self._file.seek(0)
        text = self._file.read()
        whole, end, broken = text.rpartition(b"\n")
        current = False
        for number, line in enumerate(whole.split(b"\n"), 1):
            entry = self._entry(line, number) if line else {}
            if "facts" in entry:
                current = entry["facts"] == self._facts
            elif entry and current:
                self._known[entry["unit"], entry["config"]] = entry["result"]
        if broken:  # the run before was killed while it wrote this line
            self._file.truncate(len(whole + end))
        return current

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
        try:
            self._file.write((json.dumps(entry) + "\n").encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OSError(
                f"{self.path} cannot be written: {error}; a run started again goes on from it"
            ) from error

    def _entry(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise ValueError(
                f"{self.path}, line {number} is no JSON: it is not the journal of a tuning run; "
                "move it or give another folder"
            ) from error
        if not isinstance(entry, dict) or not ("facts" in entry or _is_measurement(entry)):
            raise ValueError(
                f"{self.path}, line {number} is not of a journal, move it or give another folder: "
                f"{line[:80].decode(errors='replace')}"
            )
        return entry


def _is_measurement(entry: dict[str, Any]) -> bool:
    kinds = {name: type(value) for name, value in entry.items()}
    return kinds.pop("result", None) in (float, int, str) and kinds == {"unit": str, "config": str}
