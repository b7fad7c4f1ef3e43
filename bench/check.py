"""Whether a contender computes the right thing: no number is reported for one that does not."""

from collections.abc import Sequence

import torch
from torch import Tensor

# Relative error in the Frobenius norm. Wide enough for tf32 and for sums kept in bfloat16, which
# are choices that some peers make, and far too narrow for a lost row or a wrong mask.
TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 4e-2}
DTYPES = {str(dtype)[6:]: dtype for dtype in TOLERANCE}
# An element may be off by this many tolerances of its row's magnitude.
_ELEMENT = 8.0
_PIECE = 2**26


class Wrong(Exception):
    """A result that is not what the op means."""


def relative_error(name: str, actual: Tensor, exact: Tensor, dtype: torch.dtype) -> float:
    """||actual - exact|| / ||exact||; raises where it, or one element, is beyond the tolerance."""
    if actual.shape != exact.shape:
        raise Wrong(f"{name} has shape {list(actual.shape)}, expected {list(exact.shape)}")
    if exact.numel() == 0:
        return 0.0
    tolerance = TOLERANCE[dtype]
    total = torch.zeros((), dtype=torch.float64, device=exact.device)
    worst = torch.zeros_like(total)
    magnitude = exact.norm() / exact.numel() ** 0.5
    # In pieces: a float64 copy of everything may not fit beside the operands.
    step = max(1, _PIECE // (exact.numel() // exact.shape[0]))
    for got, want in zip(torch.split(actual, step), torch.split(exact, step), strict=True):
        error = (got.to(torch.float64) - want).abs()
        total += error.square().sum()
        row = want.abs().reshape(want.shape[0], -1).amax(1)
        excess = error.reshape(want.shape[0], -1) / (row + magnitude).clamp(min=1e-30)[:, None]
        worst = torch.maximum(worst, excess.amax())
    norm = float(exact.norm())
    relative = float(total.sqrt()) / norm if norm > 0 else float(total.sqrt())
    # Written so that NaN is wrong as well.
    if not relative <= tolerance:
        raise Wrong(f"{name} has a relative error of {relative:.1e}, allowed {tolerance:.0e}")
    if not float(worst) <= _ELEMENT * tolerance:
        raise Wrong(
            f"{name} has an element that is off by {float(worst):.1e} of its row's magnitude, "
            f"allowed {_ELEMENT * tolerance:.0e}"
        )
    return relative


def poison(shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, device: torch.device) -> None:
    """Leave NaN in the memory that the next results are likely to get.

    CUDA's allocator hands a freed block to the next request of its size, so a contender that
    leaves elements unwritten shows NaN there, not the right result of the one before it.
    """
    blocks = [torch.full(shape, torch.nan, dtype=dtype, device=device) for shape in shapes]
    del blocks
