"""Item tables whose rows lie on all processes: torchrec's sharded `EmbeddingCollection`.

Process k of n holds the k-th n-th of the rows of each table, with their optimizer state. A step
asks the owners for the rows of its events, targets and negatives in one exchange; their gradients
go back in another, and each owner updates its rows in the backward pass, by row-wise Adagrad: only
rows that were asked for, one number of state a row. The dense rest is replicated.
"""

import importlib
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, distributed
from torch.nn import functional

from examples.recommender.checkpoint import generator_of
from examples.recommender.distributed import World
from examples.recommender.model import NextItemModel
from examples.recommender.settings import Settings
from jagged import JaggedTensor

TORCHREC = {
    "distributed.embedding": ["EmbeddingCollectionSharder"],
    "distributed.model_parallel": ["DistributedModelParallel"],
    "distributed.sharding_plan": ["construct_module_sharding_plan", "row_wise"],
    "distributed.types": ["ShardingEnv", "ShardingPlan"],
    "modules.embedding_configs": ["EmbeddingConfig"],
    "modules.embedding_modules": ["EmbeddingCollection"],
    "optim.apply_optimizer_in_backward": ["apply_optimizer_in_backward"],
    "optim.rowwise_adagrad": ["RowWiseAdagrad"],
    "sparse.jagged_tensor": ["KeyedJaggedTensor"],
}
ROWS_IN_A_DRAW = 65_536
LOOKUP_OP = "split_embedding_codegen_lookup_rowwise_adagrad_function_pt2"


class ShardedNextItemModel(NextItemModel):
    """`NextItemModel` over sharded tables: `shard` makes it work, the arguments are the same."""

    def add_tables(self) -> None:
        """The tables as torchrec's modules, without memory until they are sharded."""
        torchrec = _torchrec()
        features = {"read": ["events"], "scored": ["targets", "negatives"]}
        if self.settings.tied:
            features = {"read": [*features["read"], *features["scored"]]}
        self.tables = torchrec.EmbeddingCollection(
            device=torch.device("meta"),
            tables=[
                torchrec.EmbeddingConfig(
                    name=name,
                    embedding_dim=self.settings.width,
                    num_embeddings=self.num_items,
                    feature_names=names,
                )
                for name, names in features.items()
            ],
        )
        self.whole: dict[str, Tensor] = {}

    def reset_tables(self) -> None:
        """Nothing yet: `shard` initialises the rows where they are."""

    def forward(
        self, batch: JaggedTensor, negatives: Tensor | None = None, events: float | None = None
    ) -> Tensor:
        """As in `NextItemModel`; every process must call it, and give the negatives."""
        if negatives is None:
            raise ValueError("negatives must be given, the same on every process, got none")
        targets, shares = self.targets(batch)
        looked_up = self.look_up([batch.values, targets.reshape(-1), negatives])
        of_targets = functional.normalize(looked_up[1], dim=-1).reshape(
            *targets.shape, self.settings.width
        )
        return self.sampled_loss(
            self.encode(batch, looked_up[0]),
            targets,
            shares,
            negatives,
            of_targets,
            functional.normalize(looked_up[2], dim=-1),
            events=events,
        )

    def look_up(self, ids: list[Tensor]) -> list[Tensor]:
        """Rows of events, targets and negatives: [n, width] each, in one exchange."""
        names = ["events", "targets", "negatives"]
        found = self.tables(
            _torchrec().KeyedJaggedTensor(
                keys=names,
                values=torch.cat(ids),
                lengths=torch.tensor([len(one) for one in ids]).to(ids[0].device),
            )
        )
        return [found[name].values() for name in names]

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Hold the whole tables on every process meanwhile: what ranking all items takes."""
        self.whole = self._gather()
        try:
            yield
        finally:
            self.whole = {}

    def states(self, items: JaggedTensor) -> Tensor:
        """As in `NextItemModel`, inside `gathered`."""
        return self.encode(items, self.whole["read"][items.values])

    def item_vectors(self, items: Tensor | None = None) -> Tensor:
        """As in `NextItemModel`, inside `gathered`."""
        vectors = self.whole["read" if self.settings.tied else "scored"]
        return functional.normalize(vectors if items is None else vectors[items], dim=-1)

    @torch.no_grad()
    def _gather(self) -> dict[str, Tensor]:
        nothing = torch.empty(0, dtype=torch.int64, device=self.log_frequency.device)
        read, scored = [], []
        every = torch.arange(self.num_items, device=nothing.device)
        for ids in torch.split(every, ROWS_IN_A_DRAW):
            found = self.look_up([ids, nothing if self.settings.tied else ids, nothing])
            read.append(found[0])
            scored.append(found[1])
        return {"read": torch.cat(read), "scored": torch.cat(scored)}


def require_training_ops() -> None:
    """Look for what sharded tables need.

    Raises:
        ImportError: torchrec or fbgemm is not installed, or fbgemm without its training kernels.
    """
    try:
        _fbgemm()
    except ImportError as error:
        raise ImportError(f"sharded tables need torchrec and fbgemm-gpu: {error}") from error
    if not hasattr(torch.ops.fbgemm, LOOKUP_OP):
        raise ImportError(
            f"sharded tables need fbgemm's training kernels, but there is no fbgemm::{LOOKUP_OP}: "
            "install the whole fbgemm-gpu (CPU: fbgemm-gpu-cpu), or use --tables replicated"
        )
    _torchrec()


def shard(
    model: ShardedNextItemModel, settings: Settings, device: torch.device, world: World
) -> Any:
    """torchrec's `DistributedModelParallel` over the model, its rows initialised.

    Rows are N(0, 0.02) as in `NextItemModel`, drawn in blocks that each have a generator: the same
    on any number of processes, and none draws the whole table.
    """
    torchrec = _torchrec()
    torchrec.apply_optimizer_in_backward(
        torchrec.RowWiseAdagrad, model.tables.parameters(), {"lr": settings.table_learning_rate}
    )
    sharder = torchrec.EmbeddingCollectionSharder()
    by_rows = {config.name: torchrec.row_wise() for config in model.tables.embedding_configs()}
    plan = torchrec.construct_module_sharding_plan(
        model.tables,
        by_rows,
        sharder=sharder,
        world_size=world.size,
        local_size=world.local_size,
        device_type=device.type,
    )
    with warnings.catch_warnings():  # of torch's new names for what torchrec calls
        warnings.simplefilter("ignore", FutureWarning)
        parallel = torchrec.DistributedModelParallel(
            model,
            env=torchrec.ShardingEnv.from_process_group(distributed.group.WORLD),
            device=device,
            plan=torchrec.ShardingPlan({"tables": plan}),
            sharders=[sharder],
        )
    for name, table in parallel.state_dict().items():
        if name.startswith("tables."):
            for part in table.local_shards():
                first = part.metadata.shard_offsets[0]
                _draw(part.tensor, first, f"{settings.seed}/{name}")
    return parallel


@torch.no_grad()
def _draw(rows: Tensor, first: int, seed: str) -> None:
    """Fill rows `first`, `first + 1`, ... of a table."""
    end = first + rows.shape[0]
    for block in range(first // ROWS_IN_A_DRAW, math.ceil(end / ROWS_IN_A_DRAW)):
        generator = generator_of(f"{seed}/{block}")
        start = block * ROWS_IN_A_DRAW
        drawn = torch.empty(ROWS_IN_A_DRAW, rows.shape[1]).normal_(std=0.02, generator=generator)
        low, high = max(first, start), min(end, start + ROWS_IN_A_DRAW)
        rows[low - first : high - first] = drawn[low - start : high - start].to(rows.device)


def _torchrec() -> Any:
    """The names that are used of torchrec; importing it warns of this and that."""
    _fbgemm()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SimpleNamespace(
            **{
                name: getattr(importlib.import_module(f"torchrec.{module}"), name)
                for module, names in TORCHREC.items()
                for name in names
            }
        )


def _fbgemm() -> None:
    """Make fbgemm's operators known, which torchrec takes for granted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("fbgemm_gpu")
