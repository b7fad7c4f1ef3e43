"""How long the slowest of many ranks takes, with and without balancing: a simulation.

    python -m bench.balance

Lengths are 512 u⁴ (u uniform): a mean of 102, most rows short. A row of L elements takes
L + L² / (5 D) units of time, D 256 (`jagged.data.row_costs`), and a step as long as its slowest
rank. Compared are ranks that each take

- as many rows as the others, at random;
- a batch of their own with as many elements as the others, from `TokenBudgetSampler`;
- their part of a global batch dealt by `balance_rows`; and the same where the factor of L² that it
  was told is half or twice the true one.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from bench.shapes import skew
from jagged.data import TokenBudgetSampler, balance_rows, row_costs

WIDTH = 256
LONGEST = 512
SQUARE = 1 / (5 * WIDTH)


def skewed_lengths(rows: int, generator: torch.Generator) -> Tensor:
    """[rows] int64 from 1 to 512: 512 u⁴."""
    return skew(rows, LONGEST, generator).clamp(min=1)


def equal_rows(lengths: Tensor, ranks: int) -> list[Tensor]:
    """The rows of each rank: equally many."""
    return list(torch.chunk(torch.arange(len(lengths)), ranks))


def equal_elements(lengths: Tensor, ranks: int) -> list[Tensor]:
    """The rows of each rank: equally many elements, as far as whole rows allow.

    These are batches of a size, which need not be as many as there are ranks: the times are those
    of the ranks that have one (about 955 of 1024), without any that are left over.
    """
    budget = int(lengths.sum()) // ranks + LONGEST // 2
    return TokenBudgetSampler(lengths, budget).batches(0)[:ranks]


def balanced(factor: float) -> Callable[[Tensor, int], list[Tensor]]:
    """Parts by cost, `factor` times the true share of attention."""
    return lambda lengths, ranks: balance_rows(row_costs(lengths, factor * SQUARE), ranks)


WAYS: dict[str, Callable[[Tensor, int], list[Tensor]]] = {
    "equal rows": equal_rows,
    "equal elements": equal_elements,
    "balanced": balanced(1.0),
    "told half": balanced(0.5),
    "told twice": balanced(2.0),
}


def slowest(ranks: int, rows: int, steps: int, seed: int = 0) -> dict[str, float]:
    """The slowest rank's time over the mean of all, by way; a mean over steps.

    Args:
        rows: of each rank in a step, on average.
    """
    generator = torch.Generator().manual_seed(seed)
    over = dict.fromkeys(WAYS, 0.0)
    for _ in range(steps):
        lengths = skewed_lengths(ranks * rows, generator)
        costs = row_costs(lengths, SQUARE)
        for name, way in WAYS.items():
            times = torch.stack([costs[part].sum() for part in way(lengths, ranks)])
            over[name] += float(times.max() / times.mean()) / steps
    return over


def milliseconds(ranks: int, rows: int) -> float:
    """Of one core, to deal one global batch."""
    costs = row_costs(skewed_lengths(ranks * rows, torch.Generator().manual_seed(0)), SQUARE)
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        balance_rows(costs, ranks)
        best = min(best, time.perf_counter() - started)
    return 1e3 * best


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Simulate the slowest rank of a step.")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 256, 1024])
    parser.add_argument("--rows", type=int, nargs="+", default=[16, 128], help="a rank, on average")
    parser.add_argument("--steps", type=int, default=10)
    given = parser.parse_args(arguments)
    print(f"slowest rank's time over the mean, {given.steps} steps")
    heads = "".join(f"{name:>16}" for name in WAYS)
    print(f"{'ranks':>6}{'rows a rank':>13}{heads}{'dealing':>12}")
    for rows in given.rows:
        for ranks in given.ranks:
            over = slowest(ranks, rows, given.steps)
            figures = "".join(f"{value:>16.3f}" for value in over.values())
            print(f"{ranks:>6}{rows:>13}{figures}{milliseconds(ranks, rows):>9.1f} ms")


if __name__ == "__main__":
    main()
