"""HR@10 and NDCG@10 with every item ranked: no sampled negatives, nothing left out."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from examples.recommender.data import HeldOut, Rows
from jagged import JaggedTensor

TOP = 10
SCORES_IN_A_BATCH = 2_000_000  # 8 MB: what stays in a cache
SCORES_IN_A_GPU_BATCH = 64_000_000  # 256 MB: so many that launches do not count


@dataclass(frozen=True)
class Metrics:
    """Means over users: was the item among the first ten, and how far up."""

    hit_rate: float
    ndcg: float

    def __str__(self) -> str:
        return f"HR@{TOP} {self.hit_rate:.4f}  NDCG@{TOP} {self.ndcg:.4f}"


def target_ranks(scores: Tensor, targets: Tensor) -> Tensor:
    """[B] int64: how many other items score no worse than the target (0 is the top).

    Ties count against the target, and so does a NaN: a model that gives all items the same score
    earns nothing.
    """
    target_scores = scores.gather(1, targets[:, None])
    return scores.shape[1] - 1 - (scores < target_scores).sum(1)


def metrics_of_ranks(ranks: Tensor) -> Metrics:
    """HR and NDCG of one relevant item a user: 1 and 1 / log2(rank + 2) within the top ten."""
    hit = ranks < TOP
    gain = torch.where(hit, 1.0 / torch.log2(ranks.double() + 2.0), 0.0)
    return Metrics(float(hit.double().mean()), float(gain.mean()))


@torch.no_grad()
def evaluate(
    scores: Callable[[JaggedTensor], Tensor],
    held_out: HeldOut,
    num_items: int,
    device: torch.device | str = "cpu",
) -> Metrics:
    """Rank all items for every user.

    Args:
        scores: takes B histories on `device`, returns [B, num_items].
    """
    device = torch.device(device)
    order = held_out.history.lengths().argsort(stable=True)
    history, target = Rows(held_out.history, device), held_out.target[order].to(device)
    most = SCORES_IN_A_GPU_BATCH if device.type == "cuda" else SCORES_IN_A_BATCH
    size = max(1, most // num_items)
    ranks = [
        target_ranks(scores(history.take(rows)), targets)
        for rows, targets in zip(torch.split(order, size), torch.split(target, size), strict=True)
    ]
    return metrics_of_ranks(torch.cat(ranks).cpu())
