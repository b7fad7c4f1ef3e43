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
    rows (items as values, the item after each as weights) it returns the loss.

    Args:
        encoder: takes and returns a jagged tensor with values [T, width]; causal.
        seen: [num_items], how often each item occurs in the training part: the probability of an
            in-batch negative.
        settings: width, dropout, tied, loss, negatives and temperature are used.
    """

    log_frequency: Tensor

    def __init__(self, encoder: nn.Module, seen: Tensor, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.num_items = seen.shape[0]
        self.items = nn.Embedding(self.num_items, settings.width)
        self.outputs = self.items if settings.tied else nn.Embedding(self.num_items, settings.width)
        self.dropout = nn.Dropout(settings.dropout)
        self.encoder = encoder
        frequency = seen.clamp(min=1).double() / seen.clamp(min=1).sum()
        self.register_buffer("log_frequency", frequency.log().float(), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Embeddings N(0, 0.02); the encoder has initialised itself."""
        nn.init.normal_(self.items.weight, std=0.02)
        if self.outputs is not self.items:
            nn.init.normal_(self.outputs.weight, std=0.02)

    def forward(self, batch: JaggedTensor) -> Tensor:
        """The loss, a scalar: softmax cross-entropy of the next item, mean over all events."""
        if batch.weights is None:
            raise ValueError("batch must carry the next items as weights, got none")
        return self.loss(self.states(batch), batch.weights)

    def states(self, items: JaggedTensor) -> Tensor:
        """[T, width], of norm 1: the state after each event."""
        embedded = self.items(items.values) * math.sqrt(self.settings.width)
        encoded: JaggedTensor = self.encoder(items.with_values(self.dropout(embedded)))
        return functional.normalize(encoded.values.float(), dim=-1)

    def item_vectors(self, items: Tensor | None = None) -> Tensor:
        """[..., width], of norm 1: of the given items, or of all."""
        vectors = self.outputs.weight if items is None else self.outputs(items)
        return functional.normalize(vectors, dim=-1)

    def scores(self, history: JaggedTensor) -> Tensor:
        """[B, num_items]: the scores after the last event of each row; no row may be empty."""
        states = self.states(history)[history.offsets[1:] - 1]
        return states @ self.item_vectors().T

    def loss(self, states: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy of `targets` [T], against all items or against shared negatives."""
        kind, temperature = self.settings.loss, self.settings.temperature
        # In float32 whatever autocast says: scores are divided by a small temperature.
        with torch.autocast(states.device.type, enabled=False):
            if kind == "full":
                return functional.cross_entropy(
                    states @ self.item_vectors().T / temperature, targets
                )
            negatives = self._negatives(targets)
            positive = (states * self.item_vectors(targets)).sum(1, keepdim=True) / temperature
            negative = states @ self.item_vectors(negatives).T / temperature
            if kind == "in-batch":
                # Popular items come up as negatives more often; logQ takes that out again.
                positive = positive - self.log_frequency[targets][:, None]
                negative = negative - self.log_frequency[negatives]
            negative = negative.masked_fill(negatives == targets[:, None], -torch.inf)
            scores = torch.cat([positive, negative], dim=1)
            return functional.cross_entropy(scores, torch.zeros_like(targets))

    def _negatives(self, targets: Tensor) -> Tensor:
        """[negatives] items shared by all events of the batch."""
        size = (self.settings.negatives,)
        if self.settings.loss == "uniform":
            return torch.randint(self.num_items, size, device=targets.device)
        return targets[torch.randint(targets.shape[0], size, device=targets.device)]


def hstu_encoder(settings: Settings) -> HSTUStack:
    """A stack of research layers with a relative bias by position, or of production layers."""
    size = settings.width // settings.heads
    preset = HSTUConfig.research if settings.layer == "research" else HSTUConfig.production
    config = preset(
        embedding_dim=settings.width,
        num_heads=settings.heads,
        attention_dim=size,
        hidden_dim=size,
        max_length=settings.max_length,
        num_layers=settings.layers,
        dropout=settings.dropout,
        time_buckets=0,  # the sequence format has no times
    )
    return HSTUStack(config)
