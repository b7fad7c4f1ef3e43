"""How a run ends, for the scheduler that started it.

Exit codes: 0 done; 75 (EX_TEMPFAIL) asked to stop, checkpoint written, run it again; 65
(EX_DATAERR) a loss or weight that is not finite, running it again would not help; 78 (EX_CONFIG)
the checkpoint is of other data, of another version or broken; 130 interrupted from the keyboard; 2
wrong arguments; 1 anything else. torchrun itself ends with 1 whatever its processes say:
`status.json` in the run folder has the code too.
"""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from examples.recommender import checkpoint

DONE = 0
RUN_AGAIN = 75
NOT_FINITE = 65
WRONG_CHECKPOINT = 78


class Terminated(Exception):
    """Training stopped because it was asked to, after a checkpoint.

    Args:
        step: the last one.
    """

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step


class Termination:
    """Whether SIGTERM came. It is answered between steps, never in the middle of one."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Remember SIGTERM meanwhile, instead of dying of it."""
        before = signal.signal(signal.SIGTERM, self._remember)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def write_status(folder: Path, code: int | None, reason: str) -> None:
    """Leave the exit code, and why, in the run folder as `status.json`; None while it runs."""
    checkpoint.write_text(
        folder / "status.json", json.dumps({"code": code, "reason": reason}) + "\n"
    )
