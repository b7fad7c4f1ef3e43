"""What the machine can do, measured in the run that is held against it."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from bench.rows import Machine, Row
from jagged.tuning.timing import Stopwatch, Timing

_CPU = (64 * 2**20, 1024)  # bytes of a buffer, side of a matrix


@dataclass(frozen=True)
class Limits:
    """GB/s read and written by a copy, GB/s read by a sum, TFLOP/s of a square matrix product."""

    copy_gb_s: float
    read_gb_s: float
    matmul_tflop_s: float
    timings: tuple[Timing, Timing, Timing]
    sizes: tuple[str, str, str]
    matmul_dtype: torch.dtype

    def rows(self, machine: Machine) -> Iterator[Row]:
        rates = ((self.copy_gb_s, None), (self.read_gb_s, None), (None, self.matmul_tflop_s))
        dtypes = (torch.float32, torch.float32, self.matmul_dtype)
        modes = ("copy", "read", "matmul")
        for mode, timing, size, dtype, (gb_s, tflop_s) in zip(
            modes, self.timings, self.sizes, dtypes, rates, strict=True
        ):
            yield Row(
                machine,
                "limits",
                mode,
                size,
                str(dtype)[6:],
                "torch",
                timing.p50,
                timing.p20,
                timing.p80,
                gb_s,
                tflop_s,
                1.0,
                host_us=timing.host_us,
            )


def measure_limits(stopwatch: Stopwatch) -> Limits:
    """Copy and read over buffers far above any cache, and one large product of random matrices."""
    device = stopwatch.device
    if device.type == "cuda":
        size = min(4 * 2**30, torch.cuda.get_device_properties(device).total_memory // 16)
        side, dtype = 8192, torch.bfloat16
    else:
        (size, side), dtype = _CPU, torch.float32
    copy, read = _memory(stopwatch, size)
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    matmul = stopwatch.time(lambda: left @ right)
    return Limits(
        copy_gb_s=2 * size / copy.p50 * 1e-6,
        read_gb_s=size / read.p50 * 1e-6,
        matmul_tflop_s=2 * side**3 / matmul.p50 * 1e-9,
        timings=(copy, read, matmul),
        sizes=(f"{size // 2**20}MiB", f"{size // 2**20}MiB", f"{side}x{side}x{side}"),
        matmul_dtype=dtype,
    )


def _memory(stopwatch: Stopwatch, size: int) -> tuple[Timing, Timing]:
    """Copy and read of `size` bytes, in a function of their own so that the buffers go with it."""
    source = torch.randn(size // 4, device=stopwatch.device)
    target = torch.empty_like(source)
    copy = stopwatch.time(lambda: target.copy_(source))
    read = stopwatch.time(lambda: source.sum())
    return copy, read
