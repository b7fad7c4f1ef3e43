"""Ragged features to a ranking MLP: will this user click this item?

    python -m examples.ranking_mlp

A user has a history of items and a context vector. The context chooses a linear map of its own for
every row (`PerRowLinear`), attention pools the mapped history into one vector, and an MLP compares
it with the candidate. Batches hold a bounded number of events, not a fixed number of users.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a file: make the repository importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import Tensor, nn

from examples import takes_no_options
from jagged import JaggedTensor
from jagged.data import TokenBudgetSampler, collate
from jagged.modules import AttentionPooling, PerRowLinear

NUM_ITEMS, GENRES, WIDTH, CONTEXT = 100, 5, 16, 4


class Ranker(nn.Module):
    """Logit of a click, for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(NUM_ITEMS, WIDTH)
        self.contextual = PerRowLinear(WIDTH, WIDTH, context_dim=CONTEXT)
        self.pooling = AttentionPooling(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(3 * WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, history: JaggedTensor, context: Tensor, candidate: Tensor) -> Tensor:
        events = history.with_values(self.items(history.values))
        user = self.pooling(self.contextual(events, context))
        item = self.items(candidate)
        logits: Tensor = self.mlp(torch.cat([user, item, user * item], dim=1)).squeeze(1)
        return logits


def make_users(count: int) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
    """Histories of one liked genre (or empty), contexts, candidates; a click is a liked genre."""
    genre = torch.randint(GENRES, (count,))
    lengths = torch.randint(0, 30, (count,)).tolist()
    spread = NUM_ITEMS // GENRES
    histories = [
        torch.randint(spread, (n,)) * GENRES + g
        for n, g in zip(lengths, genre.tolist(), strict=True)
    ]
    clicked = torch.rand(count) < 0.5
    shift = torch.where(clicked, 0, torch.randint(1, GENRES, (count,)))
    candidates = torch.randint(spread, (count,)) * GENRES + (genre + shift) % GENRES
    return histories, torch.randn(count, CONTEXT), candidates, clicked.float()


def main(users: int = 3_000, epochs: int = 8) -> float:
    """Train, print the loss of every epoch; returns the accuracy on new users."""
    torch.manual_seed(0)
    model = Ranker()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    histories, contexts, candidates, clicks = make_users(users)
    sampler = TokenBudgetSampler([len(row) for row in histories], budget=1024, max_rows=256)
    for epoch in range(epochs):
        total = 0.0
        for rows in sampler:
            logits = model(collate([histories[i] for i in rows]), contexts[rows], candidates[rows])
            loss = nn.functional.binary_cross_entropy_with_logits(logits, clicks[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item() * len(rows)
        print(f"epoch {epoch + 1}: loss {total / users:.4f}")

    histories, contexts, candidates, clicks = make_users(1_000)
    with torch.no_grad():
        found = model(collate(histories), contexts, candidates) > 0
    accuracy = float((found == (clicks > 0.5)).double().mean())
    print(f"accuracy on 1,000 new users: {accuracy:.3f} (chance 0.5)")
    return accuracy


if __name__ == "__main__":
    takes_no_options(__doc__)
    main()
