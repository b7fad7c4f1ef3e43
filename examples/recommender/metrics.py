"""What a long run says while it goes: `metrics.jsonl`, TensorBoard, a line now and then."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from tqdm import tqdm

from examples.recommender import checkpoint

SECONDS_BETWEEN_LINES = 60.0  # where no progress bar is shown


class MetricsLog:
    """Appends a record every few steps and every epoch; rank 0 alone has one that writes.

    `metrics.jsonl` holds an object a line. Of steps: model, epoch, step, loss (of the steps since
    the record before, mean over events), learning_rate, rows_per_second, events_per_second,
    seconds_left; of an epoch: what `epochs.jsonl` has. TensorBoard shows the same by step.

    Args:
        folder: of the run.
        model: its name in the records.
        writing: False where another process does it.
        tensorboard: also write TensorBoard's files, to `tensorboard/` in the folder.

    Raises:
        ImportError: tensorboard is asked for and not installed.
    """

    def __init__(self, folder: Path, model: str, *, writing: bool, tensorboard: bool) -> None:
        self.file = folder / "metrics.jsonl"
        self.model = model
        self.writing = writing
        self._folder = folder / "tensorboard" / model if tensorboard else None
        self._handle: IO[str] | None = None
        self._board: Any = None
        self._last_line = time.perf_counter()
        if tensorboard:
            require_tensorboard()

    @contextmanager
    def open(self, step: int) -> Iterator[None]:
        """Keep the files open; records of this model past `step`, from a crash, are dropped."""
        if not self.writing:
            yield
            return
        if self.file.exists():
            lines = self.file.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if self._is_kept(line, step)]
            if kept != lines:
                checkpoint.write_text(self.file, "".join(kept))
        self._handle = self.file.open("a", encoding="utf-8")
        if self._folder is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(self._folder), purge_step=step + 1)
        try:
            yield
        finally:
            self._handle.close()
            self._handle = None
            if self._board is not None:
                self._board.close()
                self._board = None

    def record(self, step: int, values: dict[str, float]) -> None:
        """Write one record."""
        if self._handle is None:
            return
        record = {"model": self.model, "step": step, **values}
        self._handle.write(json.dumps(record) + "\n")
        self._handle.flush()
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def show(self, step: int, steps: int, values: dict[str, float]) -> None:
        """Print a line, at most one a minute."""
        now = time.perf_counter()
        if self.writing and now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            tqdm.write(
                f"{self.model:<8} step {step:,}/{steps:,}  loss {values['loss']:.4f}  "
                f"{values['rows_per_second']:>7,.0f} sequences/s  "
                f"{timedelta(seconds=round(values['seconds_left']))} left"
            )

    def _is_kept(self, line: str, step: int) -> bool:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:  # half a line: the process died while it wrote
            return False
        return bool(record["model"] != self.model or record["step"] <= step)


def require_tensorboard() -> None:
    """Look for the package.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "--tensorboard needs the package: pip install 'jagged-layers[tensorboard]'"
        ) from error
