"""Step 1. What Helion is, the two halves of a kernel, and tiles.

A GPU runs one program thousands of times at once, each on its own piece of the data. You can write
that program at four levels:

| level | what you think about |
|---|---|
| CUDA C++ | threads, warps, shared memory, barriers |
| Triton | blocks: program ids, pointers, strides, masks |
| Helion | tiles, and torch operations on them |
| torch | whole tensors: somebody else wrote the kernels |

Helion is a small language inside Python (an embedded DSL). It does not talk to the GPU: it writes a
Triton kernel, which Triton compiles to PTX. What it takes off your hands is the part of a Triton
kernel that computes addresses and masks, and the choice of block sizes.

A kernel function has two halves. What stands outside of the `hl.tile` loop is ordinary Python and
runs on the host, once a call: sizes, `torch.empty`, `return`. What stands inside is never run as
Python: Helion reads its source and turns it into GPU code.
"""

import helion
import helion.language as hl
import torch

from examples.helion_tutorial.workshop import DEVICE, check, say


@helion.kernel(config=helion.Config(block_sizes=[64]))
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y, for vectors of equal length."""
    # Host half.
    out = torch.empty_like(x)
    # Device half: this loop is a grid of programs that run side by side. `tile` is not a number
    # but a set of 64 indices; the last tile is masked where it hangs over the end.
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


@helion.kernel(config=helion.Config(block_sizes=[64, 64]))
def owner(x: torch.Tensor) -> torch.Tensor:
    """For each element of x [M, N], the place of the tile that owns it: row * 1000 + column."""
    m, n = x.size()
    out = torch.empty([m, n], dtype=torch.int32, device=x.device)
    # Two sizes, two tiles: a grid of rectangles. Still one loop, still one kernel.
    for tile_m, tile_n in hl.tile([m, n]):
        place = tile_m.index[:, None] // 64 * 1000 + tile_n.index[None, :] // 64
        out[tile_m, tile_n] = place.to(torch.int32)
    return out


def main() -> None:
    x, y = torch.randn(2, 1000, device=DEVICE)
    check("x + y", add(x, y), x + y)

    # 1000 elements in tiles of 64: 15 whole tiles and one of 40 that Helion masks.
    say(f"1000 elements in tiles of 64 are {helion.cdiv(1000, 64)} programs")

    # A matrix of 1024 x 1024 in tiles of 64 x 64 would be 16 x 16 = 256 programs; a quarter of it:
    matrix = torch.empty(512, 512, device=DEVICE)
    rows = torch.arange(512, device=DEVICE) // 64
    places = owner(matrix)
    check("tile of each element", places, rows[:, None] * 1000 + rows)
    say(f"512 x 512 in tiles of 64 x 64 are {places.unique().numel()} programs")


if __name__ == "__main__":
    main()
