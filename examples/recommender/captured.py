"""A whole training step as one CUDA graph: batches of any shape in buffers of fixed capacity."""

from collections.abc import Callable

import torch
from torch import Tensor

from jagged import JaggedTensor

WARM_UP_STEPS = 3  # kernels are compiled and optimizer states made before the capture


class CapturedStep:
    """Runs a training step as a CUDA graph: one launch, whatever the step consists of.

    A graph has fixed addresses and shapes, so each batch is copied into buffers of `capacity`
    elements and `max_rows` rows: missing rows are empty, and the elements past the last row are the
    capacity tail that every layer of this library leaves out.

    Args:
        step: takes a batch and its negatives (or None); runs model, backward and optimizer from
            gradients that are None, returns the loss. It must not wait for the device, and the
            optimizer must keep its numbers there (`capturable=True`, the learning rate a tensor).
        capacity: the most elements of a batch.
        max_rows: the most rows of a batch.
        max_length: the longest row of any batch.
        negatives: how many of them a batch comes with, always; 0 for none.
        device: a CUDA device.

    The first calls run the step as it is; then it is captured once and replayed.
    """

    def __init__(
        self,
        step: Callable[[JaggedTensor, Tensor | None], Tensor],
        *,
        capacity: int,
        max_rows: int,
        max_length: int,
        negatives: int = 0,
        device: torch.device,
    ) -> None:
        if device.type != "cuda":
            raise ValueError(f"device must be a CUDA device, which has graphs, got {device}")
        self.step = step
        self.batch = JaggedTensor(
            torch.zeros(capacity, dtype=torch.int64, device=device),
            torch.zeros(max_rows + 1, dtype=torch.int64, device=device),
            max_length,
            torch.zeros(capacity, dtype=torch.int64, device=device),
        )
        self.negatives = (
            torch.zeros(negatives, dtype=torch.int64, device=device) if negatives > 0 else None
        )
        self.graph: torch.cuda.CUDAGraph | None = None
        self.calls = 0
        self._loss = torch.zeros((), device=device)

    def __call__(self, batch: JaggedTensor, negatives: Tensor | None = None) -> Tensor:
        """One step on a batch of items with targets as weights; returns the loss, a new tensor."""
        fill(self.batch, batch)
        if (negatives is None) != (self.negatives is None):
            raise ValueError("negatives must come with every batch or with none")
        if self.negatives is not None and negatives is not None:
            self.negatives.copy_(negatives, non_blocking=True)
        self.calls += 1
        if self.calls <= WARM_UP_STEPS:
            return self._aside()
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):  # records; nothing runs
                self._loss = self.step(self.batch, self.negatives)
        self.graph.replay()
        return self._loss.clone()

    def _aside(self) -> Tensor:
        """The step on a side stream, where CUDA graphs ask for the warm-up to run."""
        current = torch.cuda.current_stream(self.batch.values.device)
        stream = torch.cuda.Stream(self.batch.values.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            loss = self.step(self.batch, self.negatives)
        current.wait_stream(stream)
        return loss


def fill(buffer: JaggedTensor, batch: JaggedTensor) -> None:
    """Copy a batch into a buffer that has room for it; the buffer's other rows become empty.

    Both hold items as values and targets as weights. Reads no contents: safe between replays.

    Raises:
        ValueError: the batch has more elements or rows than the buffer, or longer rows.
    """
    total, rows = batch.values.shape[0], len(batch)
    if buffer.weights is None or batch.weights is None:
        raise ValueError("buffer and batch must carry the next items as weights, got none")
    if total > buffer.values.shape[0] or rows > len(buffer):
        raise ValueError(
            f"batch must fit into {buffer.values.shape[0]} elements and {len(buffer)} rows, "
            f"got {total} and {rows}"
        )
    if batch.max_length is None or batch.max_length > (buffer.max_length or 0):
        raise ValueError(
            f"rows must have at most max_length {buffer.max_length}, got {batch.max_length}"
        )
    buffer.values[:total].copy_(batch.values)
    buffer.weights[:total].copy_(batch.weights)
    buffer.offsets[: rows + 1].copy_(batch.offsets)
    buffer.offsets[rows + 1 :].fill_(total)
