"""What all steps use: the device, the comparison with torch, what the interpreter lacks."""

import time
from collections.abc import Callable
from typing import Any

import helion
import numpy as np
import torch
import triton.language as tl
from helion._compiler.triton.backend import TritonBackend
from helion.runtime.triton import helpers
from torch import Tensor
from torch._inductor.runtime import triton_compat

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"


def say(text: str) -> None:
    """Print a line of a step."""
    print(f"   {text}")


def check(what: str, got: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Compare a kernel's result with torch's, in float64, and say so."""
    assert got.shape == expected.shape, f"{what}: {got.shape} instead of {expected.shape}"
    error = (got.double() - expected.double()).abs().max().item() if got.numel() else 0.0
    assert error <= tolerance, f"{what}: off by {error:.2e}"
    say(f"ok: {what} (largest error {error:.1e})")


def refused(what: str, error: type[Exception], reason: str, call: Callable[[], Any]) -> None:
    """Check that `call` raises `error` with `reason` in its message."""
    message = "nothing was raised"
    try:
        call()
    except error as caught:
        message = str(caught)
    assert reason in message, f"{what}: {reason!r} was expected: {message}"
    say(f"refused: {what}: {error.__name__}: {reason}")


def chosen(kernel: Any, *args: Tensor) -> Any:
    """The config that a kernel runs with for such arguments."""
    return kernel.bind(args)._config


def ragged(lengths: list[int], *features: int) -> tuple[Tensor, Tensor]:
    """Values [T, ...] of rows with these lengths, packed one after the other, and offsets [B + 1].

    Row i is `values[offsets[i] : offsets[i + 1]]`.
    """
    offsets = torch.tensor([0, *lengths], device=DEVICE).cumsum(0)
    return torch.randn(sum(lengths), *features, device=DEVICE), offsets


def stopwatch(call: Callable[[], Any], **options: Any) -> float:
    """Milliseconds of one call on the CPU, for Helion's search."""
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


# Settings of a search: without a GPU there is nothing to compile ahead and no other process needed.
SEARCH: dict[str, Any] = (
    {} if ON_GPU else {"autotune_precompile": None, "autotune_benchmark_subprocess": False}
)

if not ON_GPU:
    # The interpreter has no bodies for the functions of CUDA's libdevice that Helion calls.
    libdevice: Any = triton_compat.libdevice
    libdevice.exp = lambda x: tl.exp(x)
    # Helion's maximum keeps NaN by a reduction of its own, which is interpreted element by element.
    helpers.max_propagate_nan = lambda x, dim: tl.max(x, dim)
    # A persistent kernel has as many programs as the GPU has processors.
    helion.runtime.get_num_sm = lambda device, *, reserved_sms=0: 4
    np.seterr(
        invalid="ignore", over="ignore"
    )  # of lanes behind the end of a tile, whose results are dropped
    # A search times with CUDA events.
    TritonBackend.get_do_bench = lambda self: stopwatch
