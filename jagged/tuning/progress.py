"""A line that says how far a run is, and when it will end."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

WIDTH = 24


class Progress:
    """Shows steps done out of `total`, on one line of a terminal or as lines of a file.

    Args:
        total: steps in all.
        stream: where to; standard error when None.
        clock: seconds.
    """

    def __init__(
        self,
        total: int,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._begin = clock()
        self._done = 0.0

    def show(self, done: float, text: str, end_at: float | None = None) -> None:
        """Say that `done` steps (or parts of one) are done; `end_at`: by when time is up."""
        self._done = max(self._done, done)
        share = self._done / self._total if self._total else 1.0
        filled = int(WIDTH * share)
        bar = "#" * filled + "-" * (WIDTH - filled)
        line = f"[{bar}] {int(self._done)}/{self._total} {text}{self._left(share, end_at)}"
        if self._stream.isatty():
            self._stream.write(f"\r\x1b[K{line}")
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def close(self) -> None:
        """End the line."""
        if self._stream.isatty():
            self._stream.write("\n")
            self._stream.flush()

    def _left(self, share: float, end_at: float | None) -> str:
        now = self._clock()
        left = (now - self._begin) * (1 - share) / share if share > 0 else None
        if end_at is not None:
            left = max(0.0, end_at - now) if left is None else min(left, max(0.0, end_at - now))
        return "" if left is None else f", {left:.0f} s left"
