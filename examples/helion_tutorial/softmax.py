"""Step 2. Softmax of each row, in one line and in two passes.

    softmax(x)_j = exp(x_j) / sum_k exp(x_k)

exp(1000) is infinite, so nobody computes it like that. Subtracting the row's maximum m changes
nothing in exact arithmetic, and leaves exponents of at most 0:

    softmax(x)_j = exp(x_j - m) / d        d = sum_k exp(x_k - m)

That seems to need one pass for m, one for d and one for the result. The online recurrence finds m
and d together, block by block. When a block raises the maximum from m to m', the sum so far was
measured from the wrong zero; multiplying it by exp(m - m') moves it:

    m' = max(m, max of the block)
    d' = d * exp(m - m') + sum over the block of exp(x - m')

Example: blocks [1, 2] and [3, 4]. After the first m = 2 and d = e^-1 + 1. After the second m' = 4
and d' = (e^-1 + 1) e^-2 + e^-1 + 1 = e^-3 + e^-2 + e^-1 + 1, the sum over all four from 4.
"""

import math

import helion
import helion.language as hl
import torch

from examples.helion_tutorial.workshop import DEVICE, check, say


@helion.kernel(config=helion.Config(block_sizes=[16]))
def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over dim 1 of x [rows, columns]: torch's own function, on the rows of a tile.

    A program holds whole rows at once and reads them once: the form to begin with, as long as a row
    fits the registers of a program.
    """
    rows, _columns = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(rows):
        out[tile, :] = torch.nn.functional.softmax(x[tile, :], dim=1)
    return out


@helion.kernel(config=helion.Config(block_sizes=[16, 64]))
def softmax_two_pass(x: torch.Tensor) -> torch.Tensor:
    """The same with a row in blocks of columns, so that it may be of any length.

    x is read twice instead of once; what a program holds does not grow with the row.
    """
    rows, columns = x.size()
    out = torch.empty_like(x)
    # Registered, so that both inner loops share one block size, which a config or a search sets.
    block_rows = hl.register_block_size(rows)
    block_columns = hl.register_block_size(columns)
    for tile_r in hl.tile(rows, block_size=block_rows):
        # In float32 whatever x is: float16 keeps 11 bits, and a sum of 2560 of them none to spare.
        top = hl.full([tile_r], float("-inf"), dtype=torch.float32)
        mass = hl.zeros([tile_r], dtype=torch.float32)
        # An inner loop is a loop inside of each program. All three loops are one GPU kernel.
        for tile_c in hl.tile(columns, block_size=block_columns):
            values = x[tile_r, tile_c]
            # Columns past the end count as -inf for amax and as 0 for sum.
            higher = torch.maximum(top, torch.amax(values, dim=1))
            mass = mass * torch.exp(top - higher) + torch.exp(values - higher[:, None]).sum(dim=1)
            top = higher
        for tile_c in hl.tile(columns, block_size=block_columns):
            values = x[tile_r, tile_c]
            out[tile_r, tile_c] = torch.exp(values - top[:, None]) / mass[:, None]
    return out


def online(row: list[float], block: int) -> tuple[float, float]:
    """The recurrence in plain Python: maximum m and sum d of a row."""
    m, d = -math.inf, 0.0
    for begin in range(0, len(row), block):
        part = row[begin : begin + block]
        higher = max(m, *part)
        d = d * math.exp(m - higher) + sum(math.exp(x - higher) for x in part)
        m = higher
    return m, d


def main() -> None:
    m, d = online([1.0, 2.0, 3.0, 4.0], block=2)
    assert m == 4.0
    assert math.isclose(d, math.exp(-3) + math.exp(-2) + math.exp(-1) + 1)
    say(f"the recurrence on [1, 2], [3, 4]: m = {m}, d = {d:.4f}")

    x = torch.randn(50, 200, device=DEVICE)
    check("softmax in one line", softmax(x), x.softmax(1))
    check("softmax in two passes", softmax_two_pass(x), x.softmax(1))

    large = x.half() * 1000  # exp of this is inf in every format
    expected = large.double().softmax(1)
    check("float16, large values", softmax_two_pass(large), expected, tolerance=1e-3)

    small = torch.tensor([[1.0, 2.0, 3.0]], device=DEVICE)
    expected = torch.tensor([[0.0900, 0.2447, 0.6652]], device=DEVICE)
    check("[1, 2, 3]", softmax_two_pass(small), expected, tolerance=1e-4)


if __name__ == "__main__":
    main()
