"""The training loop: one model, its batches, its checkpoints, its validation.

It runs in one process; `distributed_trainer` makes it run in many.
"""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from examples.recommender import checkpoint
from examples.recommender.captured import CapturedStep
from examples.recommender.data import HeldOut, Rows, Split
from examples.recommender.distributed import World
from examples.recommender.evaluate import Metrics, evaluate
from examples.recommender.exits import Terminated
from examples.recommender.metrics import MetricsLog
from examples.recommender.model import NextItemModel, dense_parameters
from examples.recommender.report import EpochRecord, epoch_line
from examples.recommender.settings import Settings
from jagged import JaggedTensor
from jagged.data import BalancedSampler, TokenBudgetSampler

WARM_UP_STEPS = 100
FINAL_LEARNING_RATE = 0.1
CHECKPOINT_FORMAT = 2


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
    """What the current epoch has added up so far; `loss` over all events, of all processes."""

    loss: float = 0.0
    events: int = 0
    rows: int = 0
    seconds: float = 0.0


class Trainer:
    """Trains one model; all that a continued run needs is in `state_dict`.

    The device is never waited for in a step: losses stay in a buffer there, and every
    `settings.log_steps` steps, and before a checkpoint, all of them are read at once. Then the
    progress is shown, a loss that is not finite is found, and SIGTERM is answered.

    Args:
        name: of the model, and of its checkpoint `<name>.pt` in the folder.
        model: on the CPU; it moves to the device.
        split: the data.
        settings: of the run.
        folder: an existing run folder.
        device: where the model trains.
        world: the processes that train it; each works on its part of every batch.
        asked_to_stop: whether this process is to save and end.
    """

    def __init__(
        self,
        name: str,
        model: NextItemModel,
        split: Split,
        settings: Settings,
        folder: Path,
        device: torch.device,
        world: World | None = None,
        asked_to_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.name = name
        self.split = split
        self.settings = settings
        self.file = folder / f"{name}.pt"
        self.device = device
        self.world = world or World()
        self.asked_to_stop = asked_to_stop
        self.rows = Rows(split.train, device)
        self.sampler = BalancedSampler(
            TokenBudgetSampler(
                split.train.lengths(),
                settings.token_budget,
                bucket_bounds=bucket_bounds(settings.max_length),
                seed=settings.seed,
            ),
            self.world.rank,
            self.world.size,
            square=1 / (5 * settings.width),
        )
        self.model = model
        self.parallel: Any = self._place(model)
        self.captured = self._capture() if settings.captured and name == "hstu" else None
        rate = settings.learning_rate
        self.optimizer = torch.optim.AdamW(
            parameter_groups(model, settings.weight_decay),
            # A graph reads the learning rate where it lies.
            lr=rate if self.captured is None else torch.tensor(rate, device=device),
            fused=True if device.type == "cuda" else None,
            capturable=self.captured is not None,
        )
        self.metrics = MetricsLog(
            folder, name, writing=self.world.first, tensorboard=settings.tensorboard
        )
        self.step = 0
        self.history: list[EpochRecord] = []
        self.best: dict[str, Tensor] = {}
        self.running = Running()
        # The losses of the steps since the last read, and at the end whether to stop.
        self.recent = torch.zeros(settings.log_steps + 1, dtype=torch.float64, device=device)
        self.recent_events: list[int] = []
        self.recent_rows = 0
        self.recent_since = self.began = (0, 0.0)

    @property
    def best_epoch(self) -> int:
        """The epoch (from 1) with the best validation NDCG; the first of equals."""
        return max(self.history, key=lambda record: (record.ndcg, -record.epoch)).epoch

    def fit(self) -> None:
        """Train to the last epoch, from wherever the trainer stands; then take the best epoch.

        Raises:
            FloatingPointError: a loss or a weight is not finite; the checkpoint is from before.
            Terminated: it was asked to stop; the checkpoint is of this step.
        """
        batches, epochs, started = self.sampler.batches, self.settings.epochs, time.perf_counter()
        first = batches.epoch
        self.began = self.recent_since = (self.step, started)
        hidden = None if self.world.first else True
        with (
            self.metrics.open(self.step),
            tqdm(total=self._steps_left(), desc=self.name, unit="batch", disable=hidden) as bar,
        ):
            while batches.epoch < epochs:
                self._epoch(bar)
                done = batches.epoch
                pace = (time.perf_counter() - started) / (done - first)
                if self.world.first:
                    tqdm.write(epoch_line(self.history, epochs, pace * (epochs - done)))
        self._take_best()

    def evaluate(self, held_out: HeldOut) -> Metrics:
        """Rank all items for the users of a part of the split."""
        self.model.eval()
        return evaluate(self.model.scores, held_out, self.split.num_items, self.device)

    # A step -----------------------------------------------------------------------------------

    def _place(self, model: NextItemModel) -> Any:
        """Move the model to where it trains; what it returns is called in a step."""
        return model.to(self.device)

    def _epoch(self, bar: Any) -> None:
        number = self.sampler.batches.epoch + 1
        self.parallel.train()
        every = self.settings.checkpoint_steps
        started = time.perf_counter()
        for rows in self.sampler.batches:
            self._step(rows)
            bar.update()
            saving = every > 0 and self.step % every == 0
            if saving or len(self.recent_events) == self.settings.log_steps:
                stopping = self._read(number)
                bar.set_postfix(epoch=number, loss=f"{self._mean_loss():.3f}", refresh=False)
                if saving or stopping:
                    self.running.seconds += time.perf_counter() - started
                    self._save(better=False)
                    started = time.perf_counter()
                if stopping:
                    raise Terminated(self.step)
        self._read(number)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.running.seconds += time.perf_counter() - started
        self._finish_epoch(number)

    def _step(self, rows: list[int]) -> None:
        batch = self.rows.take(self.sampler.parts(rows)[self.world.rank])
        events = int(self.rows.lengths[rows].sum())
        negatives = self._negatives(rows)
        # Gradients are means over the processes, and each has its part of the events.
        share = None if self.world.size == 1 else events / self.world.size
        self._start_step(self._rate())
        if self.captured is None:
            loss = self._learn(batch, negatives, share)
        else:
            loss = self.captured(batch, negatives)
        self.recent[len(self.recent_events)] = loss
        self.recent_events.append(events)
        self.recent_rows += len(rows)
        self.step += 1

    def _learn(
        self, batch: JaggedTensor, negatives: Tensor | None, share: float | None = None
    ) -> Tensor:
        """Forward, backward, optimizer; the loss."""
        with torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda"):
            loss = self.parallel(batch, negatives, share)
        loss.backward()
        self.optimizer.step()
        detached: Tensor = loss.detach()
        return detached

    def _capture(self) -> CapturedStep:
        settings, lengths = self.settings, self.rows.lengths
        return CapturedStep(
            self._learn,
            capacity=settings.token_budget,
            max_rows=settings.token_budget // int(lengths.min()),
            max_length=settings.max_length,
            negatives=0 if settings.loss == "full" else settings.negatives,
            device=self.device,
        )

    def _start_step(self, rate: float) -> None:
        """Set learning rates, `rate` times those of the settings, and forget the gradients."""
        for group in self.optimizer.param_groups:
            if self.captured is None:
                group["lr"] = self.settings.learning_rate * rate
            else:
                group["lr"].fill_(self.settings.learning_rate * rate)
        self.optimizer.zero_grad(set_to_none=True)

    def _rate(self) -> float:
        batches = self.sampler.batches
        progress = (batches.epoch + batches.position / len(batches)) / self.settings.epochs
        return learning_rate_factor(self.step, progress)

    def _negatives(self, rows: list[int]) -> Tensor | None:
        """[negatives] items for a global batch, the same on every process; none for full loss."""
        if self.settings.loss == "full":
            return None
        generator = checkpoint.generator_of(f"negatives/{self.settings.seed}/{self.step}")
        size = (self.settings.negatives,)
        if self.settings.loss == "uniform":
            drawn = torch.randint(self.split.num_items, size, generator=generator)
        else:
            targets = self.split.train.weights
            assert targets is not None
            ends = self.rows.lengths[rows].cumsum(0)
            event = torch.randint(int(ends[-1]), size, generator=generator)
            place = torch.searchsorted(ends, event, right=True)
            behind = ends[place] - event  # how far from the end of its row, at least 1
            row = torch.tensor(rows)[place]
            drawn = targets[self.split.train.offsets[1:][row] - behind]
        return drawn.to(self.device, non_blocking=True)

    # What is read of the device ---------------------------------------------------------------

    def _read(self, epoch: int) -> bool:
        """Take in the losses since the last read; whether to stop now, on any process's word."""
        self.recent[-1] = float(self.asked_to_stop())
        *losses, stop = (self.world.sum(self.recent) / self.world.size).tolist()
        total = 0.0
        first = self.step - len(self.recent_events)
        for step, events, loss in zip(
            range(first + 1, self.step + 1), self.recent_events, losses, strict=False
        ):
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"the loss of {self.name} is {loss} in epoch {epoch}, step {step}: lower the "
                    f"learning rate ({self._last_checkpoint()})"
                )
            total += loss * events
            self.running.loss += loss * events
        events = sum(self.recent_events)
        self.running.events += events
        self.running.rows += self.recent_rows
        if events > 0:
            self._log(epoch, total / events, events)
        self.recent.zero_()
        self.recent_events, self.recent_rows = [], 0
        self.recent_since = (self.step, time.perf_counter())
        return bool(stop > 0)

    def _log(self, epoch: int, loss: float, events: int) -> None:
        now, left = time.perf_counter(), self._steps_left()
        seconds = max(now - self.recent_since[1], 1e-9)
        values = {
            "epoch": epoch,
            "loss": loss,
            "learning_rate": float(self.optimizer.param_groups[0]["lr"]),
            "rows_per_second": self.recent_rows / seconds,
            "events_per_second": events / seconds,
            "seconds_left": (now - self.began[1]) / (self.step - self.began[0]) * left,
        }
        self.metrics.record(self.step, values)
        self.metrics.show(self.step, self.step + left, values)

    def _steps_left(self) -> int:
        batches = self.sampler.batches
        return len(batches) * (self.settings.epochs - batches.epoch) - batches.position

    def _mean_loss(self) -> float:
        """The mean loss of the epoch so far."""
        return self.running.loss / self.running.events

    def _finish_epoch(self, number: int) -> None:
        """Validate, remember the best weights, write the checkpoint."""
        found = self.evaluate(self.split.validation)
        better = found.ndcg > max((record.ndcg for record in self.history), default=-1.0)
        record = EpochRecord(
            model=self.name,
            epoch=number,
            loss=self._mean_loss(),
            rows_per_second=self.running.rows / max(self.running.seconds, 1e-9),
            seconds=self.running.seconds,
            hit_rate=found.hit_rate,
            ndcg=found.ndcg,
        )
        self.history.append(record)
        self.running = Running()
        self._save(better)
        of_epoch = {key: value for key, value in asdict(record).items() if key != "model"}
        self.metrics.record(
            self.step, {f"epoch_{key}" if key == "loss" else key: v for key, v in of_epoch.items()}
        )
        self.recent_since = (self.step, time.perf_counter())

    # Checkpoints ------------------------------------------------------------------------------

    def progress(self) -> checkpoint.State:
        """Where the trainer stands, apart from tensors."""
        return {
            "format": CHECKPOINT_FORMAT,
            "data": self.split.fingerprint,
            "step": self.step,
            "sampler": dict(self.sampler.state_dict()),
            "running": asdict(self.running),
            "history": [asdict(record) for record in self.history],
        }

    def load_progress(self, state: checkpoint.State) -> None:
        """Stand where the trainer stood that made the state.

        Raises:
            checkpoint.Mismatch: the state is of other data, or of another version of this program.
        """
        found = state.get("format")
        if found != CHECKPOINT_FORMAT:
            raise checkpoint.Mismatch(
                f"{self.file} must have checkpoint format {CHECKPOINT_FORMAT}, got "
                f"{found}: it is from another version of this program"
            )
        if state["data"] != self.split.fingerprint:
            raise checkpoint.Mismatch(
                f"{self.file} was trained on other data than {self.settings.data or 'the stream'} "
                "holds now: restore that file, or start a new run"
            )
        self.step = state["step"]
        self.sampler.load_state_dict(state["sampler"])
        self.running = Running(**state["running"])
        self.history = [EpochRecord(**record) for record in state["history"]]

    def state_dict(self) -> checkpoint.State:
        """Progress, model, optimizer, generators, best weights."""
        return {
            **self.progress(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": checkpoint.random_state(),
            "best": self.best,
        }

    def load_state_dict(self, state: checkpoint.State) -> None:
        """The reverse of `state_dict`; raises as `load_progress` does."""
        self.load_progress(state)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.captured is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = group["lr"].to(self.device)
        self.best = state["best"]
        checkpoint.restore_random_state(state["random"])

    def resume(self) -> None:
        """Continue from the checkpoint, where there is one."""
        if self.file.exists():
            self.load_state_dict(checkpoint.load(self.file))

    def _save(self, better: bool) -> None:
        """Write a checkpoint; `better`: the weights are the best so far."""
        self._check_weights()
        if better:
            self.best = {
                key: value.detach().cpu().clone() for key, value in self.model.state_dict().items()
            }
        checkpoint.save(self.file, self.state_dict())

    def _check_weights(self) -> None:
        """Losses are looked at as they are read: what the last step did to the weights, here."""
        finite = torch.stack([p.detach().isfinite().all() for p in self.parallel.parameters()])
        if float(self.world.sum((~finite.all()).double())) > 0:
            raise FloatingPointError(
                f"the weights of {self.name} are not finite after step {self.step}: lower the "
                f"learning rate ({self._last_checkpoint()})"
            )

    def _last_checkpoint(self) -> str:
        return f"the checkpoint {self.file}, if there is one, is from before"

    def _take_best(self) -> None:
        self.model.load_state_dict(self.best)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Decay the matrices of the layers; not embeddings, norms, biases and bias tables.

    Parameters that are updated in the backward pass, those of sharded tables, are left out.
    """
    embeddings = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, nn.Embedding)
        for parameter in module.parameters()
    }
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for parameter in dense_parameters(model).values():
        wanted = parameter.ndim >= 2 and id(parameter) not in embeddings
        (decayed if wanted else others).append(parameter)
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
