"""The next-item model: item embeddings, a sequence encoder, scores by cosine similarity."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.recommender.settings import Settings
from jagged import JaggedTensor
from jagged.modules import HSTUConfig, HSTUStack


class NextItemModel(nn.Module):
    """Scores every item as the next one: `cos(state, item vector) / temperature`.

    The state of an event is what the encoder makes of it and those before it. Called on training
    rows (items as values, the item after each as weights) it returns the loss. A batch may have a
    capacity tail, which takes no part.

    Args:
        encoder: takes and returns a jagged tensor with values [T, width]; causal.
        seen: [num_items], how often each item occurs in the training part: the probability of an
            in-batch negative.
        settings: those of the model and of the loss are used.
    """

    log_frequency: Tensor

    def __init__(self, encoder: nn.Module, seen: Tensor, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.num_items = seen.shape[0]
        self.add_tables()
        self.repeat_bias = nn.Parameter(torch.zeros(())) if settings.repeat_bias else None
        self.dropout = nn.Dropout(settings.input_dropout)
        self.encoder = encoder
        frequency = seen.clamp(min=1).double() / seen.clamp(min=1).sum()
        self.register_buffer("log_frequency", frequency.log().float(), persistent=False)
        self.reset_parameters()

    def add_tables(self) -> None:
        """Make the embeddings that are read and those that are scored, maybe the same."""
        self.items = nn.Embedding(self.num_items, self.settings.width)
        self.outputs = (
            self.items if self.settings.tied else nn.Embedding(self.num_items, self.settings.width)
        )

    def reset_tables(self) -> None:
        """Embeddings N(0, 0.02)."""
        nn.init.normal_(self.items.weight, std=0.02)
        if self.outputs is not self.items:
            nn.init.normal_(self.outputs.weight, std=0.02)

    def reset_parameters(self) -> None:
        """Tables, and the bias 0; the encoder has initialised itself."""
        self.reset_tables()
        if self.repeat_bias is not None:
            nn.init.zeros_(self.repeat_bias)

    def forward(
        self, batch: JaggedTensor, negatives: Tensor | None = None, events: float | None = None
    ) -> Tensor:
        """The loss, a scalar: softmax cross-entropy of the next items, mean over all events.

        Args:
            negatives: [N] items for the sampled losses, that all events share.
            events: what the sum over the batch is divided by, instead of its own number of events:
                for a part of a larger batch.
        """
        targets, shares = self.targets(batch)
        return self.loss(
            self.states(batch), targets, shares, negatives, events, past=self._past(batch)
        )

    def targets(self, batch: JaggedTensor) -> tuple[Tensor, Tensor]:
        """[T, horizon] the items after each event, and their shares in its loss (`following`)."""
        return following(batch, self.settings.horizon, self.settings.horizon_decay)

    def states(self, items: JaggedTensor) -> Tensor:
        """[T, width] float32, of norm 1: the state after each event."""
        return self.encode(items, self.items(items.values))

    def encode(self, items: JaggedTensor, embedded: Tensor) -> Tensor:
        """The states of events whose embeddings [T, width] have been looked up."""
        read = functional.dropout(
            torch.ones_like(embedded[:, :1]), self.settings.item_dropout, self.training
        )
        scaled = self.dropout(embedded * math.sqrt(self.settings.width) * read)
        encoded: JaggedTensor = self.encoder(items.with_values(scaled))
        return functional.normalize(encoded.values.float(), dim=-1)

    def item_vectors(self, items: Tensor | None = None) -> Tensor:
        """[..., width], of norm 1: of the given items, or of all."""
        vectors = self.outputs.weight if items is None else self.outputs(items)
        return functional.normalize(vectors, dim=-1)

    def scores(self, history: JaggedTensor) -> Tensor:
        """[B, num_items]: the scores after the last event of each row; no row may be empty."""
        last = history.offsets[1:] - 1
        past = self._past(history)
        return self._scores_of_all(
            self.states(history)[last], None if past is None else (past[0][last], past[1][last])
        )

    def loss(
        self,
        states: Tensor,
        targets: Tensor,
        shares: Tensor,
        negatives: Tensor | None = None,
        events: float | None = None,
        past: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Cross-entropy against all items or against negatives that all events share.

        Args:
            states: [T, width].
            targets: [T, horizon] items that follow.
            shares: [T, horizon] of each in its event's loss; all 0 for an event that has no part.
            negatives, events: as in `forward`.
            past: of each event (`past_items`), where the model has a repeat bias.
        """
        if self.settings.loss != "full":
            if negatives is None:
                raise ValueError(f"negatives must be given for the {self.settings.loss} loss")
            vectors = self.item_vectors(targets), self.item_vectors(negatives)
            return self.sampled_loss(states, targets, shares, negatives, *vectors, events=events)
        # In float32 whatever autocast says: scores are divided by a small temperature.
        with torch.autocast(states.device.type, enabled=False):
            scores = self._scores_of_all(states, past)
            return _mean(-scores.log_softmax(1).gather(1, targets), shares, events)

    def sampled_loss(
        self,
        states: Tensor,
        targets: Tensor,
        shares: Tensor,
        negatives: Tensor,
        target_vectors: Tensor,
        negative_vectors: Tensor,
        *,
        events: float | None = None,
    ) -> Tensor:
        """Cross-entropy against negatives [N], those apart that are the event's own targets.

        `target_vectors` [T, horizon, width] and `negative_vectors` [N, width] are what
        `item_vectors` gives.
        """
        with torch.autocast(states.device.type, enabled=False):
            states = states / self.settings.temperature
            positive = (target_vectors * states[:, None]).sum(2)
            negative = states @ negative_vectors.T
            if self.settings.loss == "in-batch":
                # Popular items come up as negatives more often; logQ takes that out again.
                positive = positive - self.log_frequency[targets]
                negative = negative - self.log_frequency[negatives]
            own = (negatives == targets[..., None]).any(1)
            against = negative.masked_fill(own, -torch.inf).logsumexp(1, keepdim=True)
            return _mean(functional.softplus(against - positive), shares, events)

    def _scores_of_all(self, states: Tensor, past: tuple[Tensor, Tensor] | None) -> Tensor:
        scores = states / self.settings.temperature @ self.item_vectors().T
        if self.repeat_bias is not None and past is not None:
            items, inside = past
            bias = self.repeat_bias / self.settings.temperature
            scores = scores.scatter_add(1, items, torch.where(inside, bias, 0.0).to(scores.dtype))
        return scores

    def _past(self, rows: JaggedTensor) -> tuple[Tensor, Tensor] | None:
        if self.repeat_bias is None:
            return None
        longest = self.settings.max_length if rows.max_length is None else rows.max_length
        return past_items(rows, longest)


def dense_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that an optimizer of ours steps, by name: not those of sharded tables, which
    are updated in the backward pass."""
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if not hasattr(parameter, "_in_backward_optimizers")
    }


def _mean(losses: Tensor, shares: Tensor, events: float | None) -> Tensor:
    return (losses * shares).sum() / (shares.sum() if events is None else events)


def following(batch: JaggedTensor, horizon: int, decay: float) -> tuple[Tensor, Tensor]:
    """The items after each event, and the share of each of them in the event's loss.

    Args:
        batch: training rows; `weights` holds the item after each event.
        horizon: how many items.
        decay: the share of an item over that of the one before it.

    Returns [T, horizon] items and [T, horizon] shares that add up to 1, or to 0 in the capacity
    tail; where a row ends earlier the share is 0 and the item any.
    """
    if batch.weights is None:
        raise ValueError("batch must carry the next items as weights, got none")
    total = batch.weights.shape[0]
    row = batch.row_ids()
    index = torch.arange(total, device=row.device)[:, None]
    ahead = index + torch.arange(horizon, device=row.device)
    inside = (ahead < batch.offsets[1:][row.clamp(max=len(batch) - 1)][:, None]) & (
        row < len(batch)
    )[:, None]
    ahead = torch.where(inside, ahead, index)
    shares = inside * decay ** torch.arange(horizon, device=row.device)
    return batch.weights[ahead], shares / shares.sum(1, keepdim=True).clamp(min=1e-9)


def past_items(rows: JaggedTensor, longest: int) -> tuple[Tensor, Tensor]:
    """The items of each event's row up to and with its own.

    Returns [T, longest] items and [T, longest] bool: which of these places hold one; elsewhere
    stands the event's own item.
    """
    total = rows.values.shape[0]
    index = torch.arange(total, device=rows.offsets.device)[:, None]
    start = rows.offsets[rows.row_ids().clamp(max=len(rows) - 1)][:, None]
    place = start + torch.arange(longest, device=start.device)
    inside = place <= index
    return rows.values[torch.where(inside, place, index)], inside


def hstu_encoder(settings: Settings) -> HSTUStack:
    """A stack of research layers with a relative bias by position, or of production layers."""
    size = settings.width // settings.heads
    research = settings.layer == "research"
    preset = HSTUConfig.research if research else HSTUConfig.production
    config = preset(
        embedding_dim=settings.width,
        num_heads=settings.heads,
        attention_dim=size,
        hidden_dim=size,
        max_length=settings.max_length,
        num_layers=settings.layers,
        dropout=settings.dropout,
        window=settings.window,
        position_bias=research and settings.position_bias,
        time_buckets=0,  # the sequence format has no times
    )
    return HSTUStack(config)
