"""The training loop: one model, its batches, its checkpoints, its validation."""

import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from examples.recommender import checkpoint
from examples.recommender.data import Rows, Split
from examples.recommender.evaluate import evaluate
from examples.recommender.model import NextItemModel
from examples.recommender.report import EpochRecord, epoch_line
from examples.recommender.settings import Settings
from jagged.data import TokenBudgetSampler

WARM_UP_STEPS = 100
FINAL_LEARNING_RATE = 0.1
CHECKPOINT_FORMAT = 1


def bucket_bounds(max_length: int) -> list[int]:
    """4, 8, 16, ... below `max_length`: rows of a batch differ at most twofold in length."""
    return [2**power for power in range(2, 63) if 2**power < max_length]


def learning_rate_factor(step: int, progress: float) -> float:
    """A linear warm-up, then half a cosine down to a tenth; `progress` runs from 0 to 1."""
    cosine = 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
    warm = min(1.0, (step + 1) / WARM_UP_STEPS)
    return warm * (FINAL_LEARNING_RATE + (1.0 - FINAL_LEARNING_RATE) * cosine)


@dataclass
class Running:
    """What the present epoch has added up so far."""

    loss: Tensor
    events: int = 0
    rows: int = 0
    seconds: float = 0.0


class Trainer:
    """Trains one model; all that a continued run needs is in `state_dict`.

    Args:
        name: of the model, and of its checkpoint `<name>.pt` in the folder.
        model: on the CPU; it moves to the device.
        split: the data.
        settings: of the run.
        folder: an existing run folder.
        device: where the model trains.
    """

    def __init__(
        self,
        name: str,
        model: NextItemModel,
        split: Split,
        settings: Settings,
        folder: Path,
        device: torch.device,
    ) -> None:
        self.name = name
        self.model = model.to(device)
        self.split = split
        self.settings = settings
        self.file = folder / f"{name}.pt"
        self.device = device
        self.rows = Rows(split.train, device)
        self.sampler = TokenBudgetSampler(
            split.train.lengths(),
            settings.token_budget,
            bucket_bounds=bucket_bounds(settings.max_length),
            seed=settings.seed,
        )
        self.optimizer = torch.optim.AdamW(
            parameter_groups(model, settings.weight_decay), lr=settings.learning_rate
        )
        self.step = 0
        self.history: list[EpochRecord] = []
        self.best: dict[str, Tensor] = {}
        self.running = self._nothing_yet()

    @property
    def best_epoch(self) -> int:
        """The epoch (from 1) with the best validation NDCG; the first of equals."""
        return max(self.history, key=lambda record: (record.ndcg, -record.epoch)).epoch

    def fit(self) -> None:
        """Train to the last epoch, from wherever the trainer stands; then take the best epoch."""
        epochs, first, started = self.settings.epochs, self.sampler.epoch, time.perf_counter()
        left = len(self.sampler) * (epochs - self.sampler.epoch) - self.sampler.position
        with tqdm(total=left, desc=self.name, unit="batch", disable=None) as bar:
            while self.sampler.epoch < epochs:
                self._epoch(bar)
                done = self.sampler.epoch
                pace = (time.perf_counter() - started) / (done - first)
                tqdm.write(epoch_line(self.history, epochs, pace * (epochs - done)))
        self.model.load_state_dict(self.best)

    def _epoch(self, bar: Any) -> None:
        number = self.sampler.epoch + 1
        self.model.train()
        every = self.settings.checkpoint_steps
        started = time.perf_counter()
        for rows in self.sampler:
            self._step(rows)
            bar.update()
            if self.step % 20 == 0:
                mean = float(self.running.loss) / self.running.events
                bar.set_postfix(epoch=number, loss=f"{mean:.3f}", refresh=False)
            if every > 0 and self.step % every == 0:
                self.running.seconds += time.perf_counter() - started
                self._mean_loss()
                self._save()
                started = time.perf_counter()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.running.seconds += time.perf_counter() - started
        self._finish_epoch(number)

    def _step(self, rows: list[int]) -> None:
        batch = self.rows.take(rows)
        events = batch.values.shape[0]
        progress = (self.sampler.epoch + self.sampler.position / len(self.sampler)) / (
            self.settings.epochs
        )
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * learning_rate_factor(self.step, progress)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda"):
            loss = self.model(batch)
        loss.backward()
        self.optimizer.step()
        self.step += 1
        self.running.loss += loss.detach().double() * events
        self.running.events += events
        self.running.rows += len(rows)

    def _finish_epoch(self, number: int) -> None:
        """Validate, remember the best weights, write the checkpoint."""
        loss = self._mean_loss()
        self.model.eval()
        found = evaluate(
            self.model.scores, self.split.validation, self.split.num_items, self.device
        )
        best_before = max((record.ndcg for record in self.history), default=-1.0)
        if found.ndcg > best_before:
            self.best = {
                key: value.detach().cpu().clone() for key, value in self.model.state_dict().items()
            }
        self.history.append(
            EpochRecord(
                model=self.name,
                epoch=number,
                loss=loss,
                rows_per_second=self.running.rows / max(self.running.seconds, 1e-9),
                seconds=self.running.seconds,
                hit_rate=found.hit_rate,
                ndcg=found.ndcg,
            )
        )
        self.running = self._nothing_yet()
        self._save()

    def _mean_loss(self) -> float:
        """The mean loss of the epoch so far.

        Raises:
            FloatingPointError: it is not finite; called before every checkpoint, so that the last
                one is good.
        """
        loss = float(self.running.loss) / self.running.events
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss of {self.name} is {loss} in epoch {len(self.history) + 1}, by step "
                f"{self.step}: lower the learning rate (the checkpoint {self.file}, if there is "
                "one, is from before)"
            )
        return loss

    def _nothing_yet(self) -> Running:
        return Running(torch.zeros((), dtype=torch.float64, device=self.device))

    # Checkpoints ------------------------------------------------------------------------------

    def state_dict(self) -> checkpoint.State:
        """Model, optimizer, sampler, generators, sums of the epoch, history, best weights."""
        return {
            "format": CHECKPOINT_FORMAT,
            "data": self.split.fingerprint,
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sampler": dict(self.sampler.state_dict()),
            "random": checkpoint.random_state(),
            "running": asdict(self.running),
            "history": [asdict(record) for record in self.history],
            "best": self.best,
        }

    def load_state_dict(self, state: checkpoint.State) -> None:
        """Stand where the trainer stood that made the state.

        Raises:
            ValueError: the state is of other data, or of another version of this program.
        """
        if state["format"] != CHECKPOINT_FORMAT:
            raise ValueError(
                f"{self.file} must have checkpoint format {CHECKPOINT_FORMAT}, got "
                f"{state['format']}: it is from another version of this program"
            )
        if state["data"] != self.split.fingerprint:
            raise ValueError(
                f"{self.file} was trained on other data than {self.settings.data or 'the stream'} "
                "holds now: restore that file, or start a new run"
            )
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.sampler.load_state_dict(state["sampler"])
        self.running = Running(**state["running"])
        self.running.loss = self.running.loss.to(self.device)
        self.history = [EpochRecord(**record) for record in state["history"]]
        self.best = state["best"]
        checkpoint.restore_random_state(state["random"])

    def resume(self) -> None:
        """Continue from the checkpoint, where there is one."""
        if self.file.exists():
            self.load_state_dict(checkpoint.load(self.file))

    def _save(self) -> None:
        checkpoint.save(self.file, self.state_dict())


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Decay the matrices of the layers; not embeddings, norms, biases and bias tables."""
    embeddings = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, nn.Embedding)
        for parameter in module.parameters()
    }
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for parameter in model.parameters():
        wanted = parameter.ndim >= 2 and id(parameter) not in embeddings
        (decayed if wanted else others).append(parameter)
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
