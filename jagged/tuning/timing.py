"""Measuring calls: device time with a cold L2, cost on the host, peak memory.

The benchmark and the tuner share it, so it imports torch alone. A call is a function without
arguments. On CUDA devices:

- the L2 cache is flushed by writing 256 MiB before each sample, as `triton.testing.do_bench`
  does, so that a sample reads from memory and pays for its share of dirty lines as it would
  after another op;
- the flush is repeated until it outlasts the call's cost on the host, so that the events bracket
  work on the device and never the wait for Python; the host's cost is a number of its own;
- the calls of one comparison take turns, and who begins rotates, so that drifting clocks and
  temperature meet all of them alike;
- the clocks are warmed first.
"""

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

Call = Callable[[], object]

_FLUSH_BYTES = 256 * 2**20
_MOST_FLUSHES = 100


@dataclass(frozen=True)
class Timing:
    """Quantiles of the time of a call in milliseconds, and its cost on the host in microseconds."""

    p20: float
    p50: float
    p80: float
    samples: int
    host_us: float


def quantile(values: Sequence[float], q: float) -> float:
    """The `q` quantile (0 to 1) of `values`, linear between neighbours."""
    if not values:
        raise ValueError("values must hold at least one number, got none")
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@dataclass
class _Contest:
    """One call in a comparison: how it is sampled, and its samples so far."""

    call: Call
    flushes: int
    samples: int
    host_us: float
    times: list[float] = field(default_factory=list)
    error: Exception | None = None


class Stopwatch:
    """Times calls on one device; keeps the buffer that flushes its L2.

    Args:
        device: where the calls run: CUDA, or the CPU (timed by the host's clock, nothing flushed).
        budget_ms: how long to sample one call, flushes included.
        fewest, most: bounds of the number of samples.
    """

    def __init__(
        self,
        device: torch.device | str,
        *,
        budget_ms: float = 100.0,
        fewest: int = 10,
        most: int = 100,
    ) -> None:
        self.device = torch.device(device)
        self.budget_ms = budget_ms
        self.fewest = fewest
        self.most = most
        self._cuda = self.device.type == "cuda"
        if self._cuda:
            self._buffer = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=self.device)
            self._buffer.zero_()
            self._flush_ms = quantile([self._once(self._flush, 0) for _ in range(5)], 0.5)

    def warm(self, seconds: float = 0.5) -> None:
        """Keep the device busy until its clocks are up."""
        side = 4096 if self._cuda else 256
        dtype = torch.bfloat16 if self._cuda else torch.float32
        matrix = torch.randn(side, side, dtype=dtype, device=self.device)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(10):
                torch.mm(matrix, matrix)
            self.synchronize()

    def compare(self, calls: Sequence[Call]) -> list[Timing | Exception]:
        """Time the calls against each other; a call that raises has its exception in its place."""
        contests = [self._prepare(call) for call in calls]
        rounds = max((contest.samples for contest in contests), default=0)
        for turn in range(rounds):
            for place in range(len(contests)):
                contest = contests[(turn + place) % len(contests)]
                if contest.error is None and turn < contest.samples:
                    self._sample(contest)
        return [self._result(contest) for contest in contests]

    def time(self, call: Call) -> Timing:
        """Time one call alone; what it raises is raised."""
        (result,) = self.compare([call])
        if isinstance(result, Exception):
            raise result
        return result

    def synchronize(self) -> None:
        """Wait for the device."""
        if self._cuda:
            torch.cuda.synchronize(self.device)

    def _flush(self) -> None:
        self._buffer.zero_()

    def _once(self, call: Call, flushes: int) -> float:
        """Milliseconds of one call."""
        if not self._cuda:
            start = time.perf_counter()
            call()
            return (time.perf_counter() - start) * 1e3
        begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        for _ in range(flushes):
            self._flush()
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    def _prepare(self, call: Call) -> _Contest:
        """Warm the call up, and find how many samples and flushes it takes."""
        try:
            call()
            host = host_cost([call] * 3, self.device)
            flushes = 0
            if self._cuda:
                # Twice what the host takes, and one more, for its hiccups.
                flushes = 1 + math.ceil(2.0 * host * 1e-3 / self._flush_ms)
                flushes = min(max(flushes, 1), _MOST_FLUSHES)
            estimate = min(self._once(call, flushes) for _ in range(2))
        except Exception as error:
            return _Contest(call, 0, 0, math.nan, error=error)
        cost = estimate + (flushes * self._flush_ms if self._cuda else 0.0)
        # A call of seconds gets three samples, not the fewest that others have.
        fewest = min(self.fewest, max(3, int(10 * self.budget_ms / max(cost, 1e-6))))
        samples = min(max(int(self.budget_ms / max(cost, 1e-6)), fewest), self.most)
        return _Contest(call, flushes, samples, host)

    def _sample(self, contest: _Contest) -> None:
        try:
            contest.times.append(self._once(contest.call, contest.flushes))
        except Exception as error:
            contest.error = error

    def _result(self, contest: _Contest) -> Timing | Exception:
        if contest.error is not None:
            return contest.error
        p20, p50, p80 = (quantile(contest.times, q) for q in (0.2, 0.5, 0.8))
        return Timing(p20, p50, p80, len(contest.times), contest.host_us)


def host_cost(calls: Sequence[Call], device: torch.device | str) -> float:
    """Microseconds that a call keeps the host busy: the median over `calls`, each made once.

    Pass one call repeated, or calls that differ (a total length never seen before, say). Nothing
    waits for the device in between, so on CUDA it is the cost of launching, as long as the
    calls are few enough not to fill the launch queue (a thousand kernels).
    """
    device = torch.device(device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    collects = gc.isenabled()
    gc.disable()
    try:
        times = []
        for call in calls:
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e6)
    finally:
        if collects:
            gc.enable()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return quantile(times, 0.5)


def peak_memory(call: Call, device: torch.device | str) -> float | None:
    """MiB a call takes from the CUDA allocator at its peak, result included; None on the CPU."""
    device = torch.device(device)
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    result = call()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    del result
    return (peak - before) / 2**20
