"""An HSTU stack in the middle of a torchrec model, eager and compiled.

    python -m examples.torchrec_model

torchrec's `EmbeddingCollection` looks up the ids of two features; `from_torchrec` takes its result
over without a copy; the stack encodes the history, the tags are averaged; the two pooled vectors go
on as torchrec's `KeyedTensor`. All after the lookup compiles in one graph.
"""

import sys
import warnings
from pathlib import Path

if __package__ in (None, ""):  # run as a file: make the repository importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import Tensor, nn

from examples import takes_no_options
from jagged import JaggedTensor
from jagged.interop.torchrec import from_torchrec
from jagged.modules import HSTUConfig, HSTUStack, MeanPooling

with warnings.catch_warnings():  # importing torchrec warns about parts of fbgemm
    warnings.simplefilter("ignore")
    from torchrec.modules.embedding_configs import EmbeddingConfig
    from torchrec.modules.embedding_modules import EmbeddingCollection
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor

FEATURES = {"history": 200, "tags": 20}  # number of ids
WIDTH, LONGEST, GENRES = 32, 20, 4


class UserTower(nn.Module):
    """Looked-up features to one vector each: what is compiled."""

    def __init__(self) -> None:
        super().__init__()
        config = HSTUConfig.production(
            embedding_dim=WIDTH, num_heads=2, attention_dim=16, hidden_dim=16, max_length=LONGEST,
            num_layers=2, dropout=0.0,
        )  # fmt: skip
        self.encoder, self.pooling = HSTUStack(config), MeanPooling()

    def forward(self, features: dict[str, JaggedTensor]) -> KeyedTensor:
        encoded = {**features, "history": self.encoder(features["history"])}
        pooled = [self.pooling(one) for one in encoded.values()]
        return KeyedTensor.from_tensor_list(list(encoded), pooled)


class Model(nn.Module):
    """Logits [B, GENRES] of the genre a user likes."""

    def __init__(self, backend: str | None) -> None:
        super().__init__()
        tables = [
            EmbeddingConfig(name=name, embedding_dim=WIDTH, num_embeddings=n, feature_names=[name])
            for name, n in FEATURES.items()
        ]
        self.lookup = EmbeddingCollection(tables=tables)
        self.tower, self.head = UserTower(), nn.Linear(len(FEATURES) * WIDTH, GENRES)
        if backend is not None:
            self.tower.compile(fullgraph=True, dynamic=True, backend=backend)

    def forward(self, batch: KeyedJaggedTensor) -> Tensor:
        features = from_torchrec(self.lookup(batch), max_length=LONGEST)
        user = self.tower(features)
        logits: Tensor = self.head(torch.cat([user[name] for name in FEATURES], dim=1))
        return logits


def make_batch(users: int, device: torch.device) -> tuple[KeyedJaggedTensor, Tensor]:
    """Ids of both features, from none to many; only the history tells the genre."""
    genre = torch.randint(GENRES, (users,))
    lengths = torch.randint(1, LONGEST + 1, (2, users), dtype=torch.int32)
    lengths[1] = lengths[1] % 4
    owner = torch.repeat_interleave(genre, lengths[0])
    history = torch.randint(FEATURES["history"] // GENRES, owner.shape) * GENRES + owner
    tags = torch.randint(FEATURES["tags"], (int(lengths[1].sum()),))
    batch = KeyedJaggedTensor(
        keys=list(FEATURES), values=torch.cat([history, tags]), lengths=lengths.reshape(-1)
    )
    return batch.to(device), genre.to(device)


def train(backend: str | None, steps: int, device: torch.device) -> list[float]:
    """The loss of every step, from the same parameters and batches each time."""
    torch.manual_seed(0)
    model = Model(backend).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(steps):
        batch, genre = make_batch(64, device)
        loss = nn.functional.cross_entropy(model(batch), genre)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(steps: int = 20, backend: str = "inductor") -> tuple[list[float], list[float]]:
    """Train eager and compiled; prints and returns the losses of both."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    eager, compiled = (train(choice, steps, device) for choice in (None, backend))
    print("step   eager  compiled")
    for step in range(0, steps, max(1, steps // 5)):
        print(f"{step + 1:>4}  {eager[step]:.4f}    {compiled[step]:.4f}")
    print(f"last  {eager[-1]:.4f}    {compiled[-1]:.4f}")
    apart = max(abs(a - b) for a, b in zip(eager, compiled, strict=True))
    print(f"the two never differ by more than {apart:.1e}")
    return eager, compiled


if __name__ == "__main__":
    takes_no_options(__doc__)
    main()
