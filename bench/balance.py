"""How long the slowest of many ranks takes, with and without balancing.

    python -m bench.balance              # a simulation
    python -m bench.balance --measure    # on one GPU, one rank after the other

Lengths are 512 u⁴ (u uniform): a mean of 102, most rows short. A row of L elements takes
L + L² / (5 D) units of time, D 256 (`jagged.data.row_costs`), and a step as long as its slowest
rank. Compared are ranks that each take

- as many rows as the others, at random;
- a batch of their own with as many elements as the others, from `TokenBudgetSampler`;
- their part of a global batch dealt by `balance_rows`; and the same where the factor of L² that it
  was told is half or twice the true one.

`--measure` times a step of two HSTU layers of width 256 (forward and backward in bfloat16, AdamW;
no communication) on the share of each rank, with equal rows and balanced, on lengths 512 u⁴ and
4096 u⁴, and sets what was predicted beside it.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.measure import quiet, refuse_waiting
from bench.shapes import skew
from jagged import JaggedTensor
from jagged.data import TokenBudgetSampler, balance_rows, row_costs
from jagged.modules import HSTUConfig, HSTUStack
from jagged.tuning.timing import Stopwatch, host_cost

WIDTH = 256
LONGEST = 512
SQUARE = 1 / (5 * WIDTH)


def skewed_lengths(rows: int, generator: torch.Generator, longest: int = LONGEST) -> Tensor:
    """[rows] int64 from 1 to `longest`: longest u⁴."""
    return skew(rows, longest, generator).clamp(min=1)


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
            over[name] += over_mean(times[None]) / steps
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


# Measuring ------------------------------------------------------------------------------------

MEASURED = ("equal rows", "balanced")
LAYERS = 2
ROWS = {512: 256, 4096: 32}  # of a rank on average, by the longest row: about 26,000 elements
SMALL_ROWS = {16: 8, 32: 4}
ROUNDS = 3


@dataclass(frozen=True)
class Spread:
    """Means over steps of the slowest rank's time over the mean of all, and its milliseconds."""

    predicted: float
    measured: float
    slowest_ms: float


class Step:
    """A training step of production layers, on rows of up to `longest` elements."""

    def __init__(self, longest: int, device: torch.device) -> None:
        torch.manual_seed(0)
        config = HSTUConfig.production(
            embedding_dim=WIDTH,
            num_heads=4,
            attention_dim=WIDTH // 4,
            hidden_dim=WIDTH // 4,
            max_length=longest,
            num_layers=LAYERS,
            dropout=0.0,
        )
        self.device = device
        self.longest = longest
        self.stack = HSTUStack(config).to(device)
        self.optimizer = torch.optim.AdamW(self.stack.parameters(), lr=1e-4, fused=True)

    def calls(self, shares: Sequence[Tensor]) -> list[Callable[[], None]]:
        """The step on each share, which is lengths of rows: functions without arguments."""
        most = max(int(lengths.sum()) for lengths in shares)
        values = torch.randn(most, WIDTH, device=self.device)  # all of them read the same
        return [self._call(values[: int(lengths.sum())], lengths) for lengths in shares]

    def _call(self, values: Tensor, lengths: Tensor) -> Callable[[], None]:
        x = JaggedTensor.from_lengths(
            values.requires_grad_(), lengths.to(self.device), max_length=self.longest
        )
        parameters = list(self.stack.parameters())

        def run() -> None:
            with torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda"):
                out = self.stack(x).values
            # Of half the sum of squares. That of x is made too: embeddings would need it.
            gradients = torch.autograd.grad(out, [*parameters, x.values], out.detach())
            for parameter, gradient in zip(parameters, gradients[:-1], strict=True):
                parameter.grad = gradient
            self.optimizer.step()

        return run


def spreads(step: Step, ranks: int, rows: int, steps: int) -> dict[str, Spread]:
    """What the ways in `MEASURED` give on the same batches.

    Args:
        rows: of each rank in a step, on average.
    """
    generator = torch.Generator().manual_seed(0)
    batches = [skewed_lengths(ranks * rows, generator, step.longest) for _ in range(steps)]
    shares = [
        lengths[part]
        for name in MEASURED
        for lengths in batches
        for part in WAYS[name](lengths, ranks)
    ]
    costs = torch.stack([row_costs(lengths, SQUARE).sum() for lengths in shares])
    times = torch.tensor(milliseconds_of(step.calls(shares), step.device))
    size = (len(MEASURED), steps, ranks)
    return {
        name: Spread(over_mean(predicted), over_mean(measured), float(measured.amax(1).mean()))
        for name, predicted, measured in zip(
            MEASURED, costs.view(size), times.view(size), strict=True
        )
    }


def over_mean(times: Tensor) -> float:
    """Of [steps, ranks]: the slowest rank's time over the mean of all; a mean over steps."""
    return float((times.amax(1) / times.mean(1)).mean())


def milliseconds_of(calls: Sequence[Callable[[], object]], device: torch.device) -> list[float]:
    """Of the device, for each call: the median of three rounds, in which the calls take turns.

    On CUDA memory is written before each call, for longer than the host takes to launch it, and
    nobody waits for the device until the end: no time has a wait for the host in it.

    Raises:
        Wrong: the first call waits for the device.
    """
    for call in calls:
        call()  # compiles kernels
    if device.type != "cuda":
        rounds = [[_host_ms(call) for call in calls] for _ in range(ROUNDS)]
        return [statistics.median(times) for times in zip(*rounds, strict=True)]
    refuse_waiting(calls[0], device)
    memory = torch.empty(2**30, dtype=torch.uint8, device=device)
    write_ms = Stopwatch(device, budget_ms=5.0).time(memory.zero_).p50
    writes = math.ceil(1.5 * host_cost(calls[:10], device) * 1e-3 / write_ms)
    events = []
    for call in [*calls] * ROUNDS:
        for _ in range(writes):
            memory.zero_()
        pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
        pair[0].record()
        call()
        pair[1].record()
        events.append(pair)
    torch.cuda.synchronize(device)
    times = [begin.elapsed_time(end) for begin, end in events]
    return [statistics.median(times[turn :: len(calls)]) for turn in range(len(calls))]


def _host_ms(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e3


def measure(ranks: Sequence[int], rows: dict[int, int], device: torch.device) -> None:
    """Print a line for each law and number of ranks.

    Args:
        rows: of a rank on average, by the longest row.
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"a step of {LAYERS} layers on {name}: slowest rank's time over the mean, and its ms")
    print(f"{'':29}" + "".join(f"{way:^30}" for way in MEASURED))
    heads = f"{'predicted':>10}{'measured':>10}{'ms':>10}" * len(MEASURED)
    print(f"{'longest':>8}{'ranks':>8}{'rows a rank':>13}{heads}{'gain':>8}")
    Stopwatch(device).warm()
    for longest, average in rows.items():
        step = Step(longest, device)
        for number in ranks:
            # Few ranks have few shares: more steps, so that the mean says something.
            found = spreads(step, number, average, max(1, 8 // number))
            figures = "".join(
                f"{way.predicted:>10.3f}{way.measured:>10.3f}{way.slowest_ms:>10.3f}"
                for way in found.values()
            )
            gain = found["equal rows"].slowest_ms / found["balanced"].slowest_ms
            print(f"{longest:>8}{number:>8}{average:>13}{figures}{gain:>7.2f}x", flush=True)


def simulate(ranks: Sequence[int], rows: Sequence[int], steps: int) -> None:
    """Print a line for each number of rows and ranks."""
    print(f"slowest rank's time over the mean, {steps} steps")
    heads = "".join(f"{name:>16}" for name in WAYS)
    print(f"{'ranks':>6}{'rows a rank':>13}{heads}{'dealing':>12}")
    for average in rows:
        for number in ranks:
            over = slowest(number, average, steps)
            figures = "".join(f"{value:>16.3f}" for value in over.values())
            print(f"{number:>6}{average:>13}{figures}{milliseconds(number, average):>9.1f} ms")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.balance", description="Show the slowest rank of a step."
    )
    parser.add_argument("--ranks", type=int, nargs="+", help="default: 8 64 256 1024, or 2 8 64")
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[16, 128], help="simulated, a rank, on average"
    )
    parser.add_argument("--steps", type=int, default=10, help="simulated")
    parser.add_argument("--measure", action="store_true", help="on a GPU, in place of simulating")
    parser.add_argument("--cpu", action="store_true", help="measure the CPU, with small sizes")
    given = parser.parse_args(arguments)
    if not given.measure:
        simulate(given.ranks or (8, 64, 256, 1024), given.rows, given.steps)
        return
    if not given.cpu and not torch.cuda.is_available():
        parser.error("there is no CUDA device: give --cpu to measure the CPU with small sizes")
    with quiet():
        measure(
            given.ranks or (2, 8, 64),
            SMALL_ROWS if given.cpu else ROWS,
            torch.device("cpu") if given.cpu else torch.device("cuda", 0),
        )


if __name__ == "__main__":
    main()
