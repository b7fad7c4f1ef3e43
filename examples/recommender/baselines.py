"""What HSTU is compared with: a popularity list, and a padded SASRec in plain torch."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.recommender.settings import Settings
from jagged import JaggedTensor


class Popularity:
    """The same list for everybody: items by how often they occur in the training part."""

    def __init__(self, seen: Tensor) -> None:
        # No two items alike, so that ties do not count against it.
        order = seen.argsort(descending=True, stable=True)
        self.item_scores = torch.empty(seen.shape[0])
        self.item_scores[order] = torch.arange(seen.shape[0], 0, -1, dtype=torch.float32)

    def scores(self, history: JaggedTensor) -> Tensor:
        """[B, num_items]."""
        return self.item_scores.expand(len(history), -1)


class PaddedSASRec(nn.Module):
    """Self-attentive sequential recommendation (Kang and McAuley, ICDM 2018), pre-norm blocks.

    Every batch is padded to its longest row, as such models are usually written; padding comes
    after a row's events, where a causal model never looks. Takes and returns a jagged tensor with
    values [T, width], so that embeddings and loss are those of the HSTU model.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.positions = nn.Embedding(settings.max_length, settings.width)
        nn.init.normal_(self.positions.weight, std=0.02 * settings.width**0.5)
        self.blocks = nn.ModuleList(_Block(settings) for _ in range(settings.layers))
        self.norm = nn.LayerNorm(settings.width)

    def forward(self, x: JaggedTensor) -> JaggedTensor:
        if x.max_length is None:
            raise ValueError("x must know its max_length: a padded batch is as long as its rows")
        row = x.row_ids()
        column = torch.arange(x.values.shape[0], device=row.device) - x.offsets[row]
        padded = x.values.new_zeros(len(x), x.max_length, x.values.shape[1])
        padded[row, column] = x.values + self.positions(column)
        for block in self.blocks:
            padded = block(padded)
        return x.with_values(self.norm(padded[row, column]))


class _Block(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.width
        self.heads = settings.heads
        self.attention_norm = nn.LayerNorm(width)
        self.projection = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.dropout = nn.Dropout(settings.dropout)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(width, width),
            nn.Dropout(settings.dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B, N, width] to the same."""
        heads = self.projection(self.attention_norm(x)).unflatten(2, (3, self.heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.output(attended.transpose(1, 2).flatten(2)))
        out: Tensor = x + self.feed_forward(x)
        return out
