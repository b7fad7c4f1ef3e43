"""Pool bags of feature ids: three ways to make one vector of a bag, side by side.

    python -m examples.pool_features

Each user has a bag of tags, from none to many. A bag is one row of a jagged tensor: no padding, no
mask. The sum keeps the size of a bag, the mean does not, attention learns what matters.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a file: make the repository importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import Tensor, nn

from examples import takes_no_options
from jagged import JaggedTensor
from jagged.data import collate
from jagged.modules import AttentionPooling, MeanPooling, SumPooling

NUM_TAGS = 50
WIDTH = 16
USERS = 256
# Half of the tags say something about a user, each adds its own value; the others are noise.
MEANINGFUL = NUM_TAGS // 2


def make_bags() -> tuple[JaggedTensor, Tensor]:
    """Bags of 0 to 8 tags, and for each the mean value of its meaningful tags (0 for none)."""
    value = torch.linspace(-1.0, 1.0, MEANINGFUL)
    bags = [torch.randint(NUM_TAGS, (int(size),)) for size in torch.randint(9, (USERS,))]
    wanted = []
    for bag in bags:
        meaningful = bag[bag < MEANINGFUL]
        wanted.append(value[meaningful].mean() if len(meaningful) > 0 else torch.tensor(0.0))
    return collate(bags), torch.stack(wanted)


def fit(pooling: nn.Module, bags: JaggedTensor, wanted: Tensor, steps: int) -> float:
    """Learn tag vectors through this pooling; returns the mean squared error at the end."""
    torch.manual_seed(0)
    table, head = nn.Embedding(NUM_TAGS, WIDTH), nn.Linear(WIDTH, 1)
    model = nn.ModuleList([table, pooling, head])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    error = float("nan")
    for _ in range(steps):
        vectors = bags.with_values(table(bags.values))
        predicted = head(pooling(vectors)).squeeze(1)
        loss = nn.functional.mse_loss(predicted, wanted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        error = loss.item()
    return error


def main(steps: int = 150) -> dict[str, float]:
    """Print the three errors; returns them by the name of the layer."""
    torch.manual_seed(0)
    bags, wanted = make_bags()
    print(bags)
    print(f"\nmean squared error after {steps} steps (variance {wanted.var():.4f}):")
    errors = {}
    for pooling in (SumPooling(), MeanPooling(), AttentionPooling(WIDTH, num_heads=2)):
        name = type(pooling).__name__
        errors[name] = fit(pooling, bags, wanted, steps)
        print(f"  {name:<18}{errors[name]:.4f}")
    return errors


if __name__ == "__main__":
    takes_no_options(__doc__)
    main()
