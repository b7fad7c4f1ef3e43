"""The training loop in many processes: gradients, tables, evaluation and checkpoints together."""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from examples.recommender import checkpoint, tables
from examples.recommender.checkpoint import State
from examples.recommender.data import HeldOut
from examples.recommender.evaluate import Metrics, evaluate
from examples.recommender.model import NextItemModel, dense_parameters
from examples.recommender.sharded_checkpoint import ShardedCheckpoints, packed, unpacked
from examples.recommender.tables import ShardedNextItemModel
from examples.recommender.train import Trainer


class DistributedTrainer(Trainer):
    """`Trainer` under torchrun: the same numbers as one process, up to the order of sums.

    That holds for a model without dropout; with it every process draws its own. Sharded tables
    differ from replicated ones, since they have another optimizer. A run continues exactly on as
    many processes as it had, and on others with new draws of dropout.
    """

    def _place(self, model: NextItemModel) -> Any:
        self.checkpoints = ShardedCheckpoints(self.file.with_suffix(""), self.world)
        self.best_checkpoint: int | None = None
        self.table_optimizer: Any = None
        if isinstance(model, ShardedNextItemModel):
            parallel = tables.shard(model, self.settings, self.device, self.world)
            self.table_optimizer = parallel.fused_optimizer
        else:
            parallel = self.world.replicate(model.to(self.device))
        if self.world.rank > 0:  # weights are drawn: from here on, dropout
            torch.manual_seed(self.settings.seed + 1_000_003 * self.world.rank)
        return parallel

    def _start_step(self, rate: float) -> None:
        super()._start_step(rate)
        if self.table_optimizer is not None:
            for group in self.table_optimizer.param_groups:
                group["lr"] = self.settings.table_learning_rate * rate
            self.table_optimizer.zero_grad()  # hands the learning rate to the kernels

    def evaluate(self, held_out: HeldOut) -> Metrics:
        """Every process ranks all items for its part of the users."""
        self.model.eval()
        rows = torch.arange(self.world.rank, held_out.target.shape[0], self.world.size)
        part = HeldOut(held_out.history.select(rows), held_out.target[rows])
        sums = [0.0, 0.0, 0.0]
        with ExitStack() as stack:
            if isinstance(self.model, ShardedNextItemModel):
                stack.enter_context(self.model.gathered())
            if len(rows) > 0:
                found = evaluate(self.model.scores, part, self.split.num_items, self.device)
                sums = [found.hit_rate * len(rows), found.ndcg * len(rows), float(len(rows))]
        whole = torch.tensor(sums, dtype=torch.float64, device=self.device)
        hits, gain, users = self.world.sum(whole).tolist()
        return Metrics(hits / users, gain / users)

    # Checkpoints ------------------------------------------------------------------------------

    def resume(self) -> None:
        """Continue from the newest checkpoint, where there is one."""
        number = self.checkpoints.newest()
        if number is None:
            return
        held = self.checkpoints.keys(number)
        own_random = f"random/{self.world.rank}"
        state: State = {"progress": b"", **self._weights(), **self._table_moments()}
        if own_random in held:
            state[own_random] = b""
        for key, tensor in held.items():
            if key.startswith("optimizer/") and tensor is not None:
                state[key] = torch.empty(tensor[0], dtype=tensor[1])
        self.checkpoints.load(number, state)
        progress = unpacked(state["progress"])
        self.best_checkpoint = progress.pop("best_checkpoint")
        self.load_progress(progress)
        self._load_moments(state)
        if own_random in held:
            checkpoint.restore_random_state(unpacked(state[own_random]))

    def _save(self, better: bool) -> None:
        self._check_weights()
        if better:
            self.best_checkpoint = (self.checkpoints.newest() or 0) + 1
        state: State = {
            "progress": packed({**self.progress(), "best_checkpoint": self.best_checkpoint}),
            f"random/{self.world.rank}": packed(checkpoint.random_state()),
            **self._weights(),
            **self._table_moments(),
            **self._moments(),
        }
        self.checkpoints.save(state, self.best_checkpoint)

    def _take_best(self) -> None:
        assert self.best_checkpoint is not None
        self.checkpoints.load(self.best_checkpoint, self._weights())

    def _last_checkpoint(self) -> str:
        return f"the checkpoint in {self.checkpoints.folder}, if there is one, is from before"

    def _weights(self) -> State:
        """Tensors of the model, in place; whole or sharded."""
        return {f"model/{key}": value for key, value in self.model.state_dict().items()}

    def _table_moments(self) -> State:
        """The state of the tables' optimizer, in place."""
        if self.table_optimizer is None:
            return {}
        return {
            f"tables/{name}/{key}": value
            for name, values in self.table_optimizer.state_dict()["state"].items()
            for key, value in values.items()
        }

    def _moments(self) -> dict[str, Tensor]:
        """The state of AdamW, by parameter."""
        return {
            f"optimizer/{name}/{key}": value
            for name, parameter in dense_parameters(self.model).items()
            for key, value in self.optimizer.state[parameter].items()
        }

    def _load_moments(self, state: State) -> None:
        whole = self.optimizer.state_dict()
        order = [p for group in self.optimizer.param_groups for p in group["params"]]
        place = {id(parameter): index for index, parameter in enumerate(order)}
        for name, parameter in dense_parameters(self.model).items():
            prefix = f"optimizer/{name}/"
            whole["state"][place[id(parameter)]] = {
                key.removeprefix(prefix): value
                for key, value in state.items()
                if key.startswith(prefix)
            }
        self.optimizer.load_state_dict(whole)
