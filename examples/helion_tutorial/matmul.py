"""Step 3. A product of matrices.

Each program owns a tile of the result and walks along K, the dimension that vanishes:

    for each tile of rows and tile of columns        (side by side)
        acc = 0
        for each tile of k                           (one after the other, in the program)
            acc += x[rows, k] @ y[k, columns]
        out[rows, columns] = acc

In Triton most lines of such a kernel turn a program id into pointers; step 5 shows how to see them.
"""

import helion
import helion.language as hl
import torch

from examples.helion_tutorial.workshop import DEVICE, ON_GPU, check, say


@helion.kernel(config=helion.Config(block_sizes=[32, 32, 32], num_warps=4), dot_precision="ieee")
def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x [M, K] @ y [K, N] -> [M, N] in x's dtype; sums in float32."""
    m, k = x.size()
    _k, n = y.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            # A product with an accumulator: on tensor cores where the dtype has them.
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc.to(x.dtype)
    return out


@helion.kernel(config=helion.Config(block_sizes=[32, 32, 32], num_warps=4), dot_precision="ieee")
def linear_relu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """relu(x @ weight.T + bias): what follows the product is free, the tile is in registers."""
    m, k = x.size()
    n, _k = weight.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], weight[tile_n, tile_k].T)
        out[tile_m, tile_n] = torch.relu(acc + bias[tile_n][None, :]).to(x.dtype)
    return out


def main() -> None:
    # No size is a multiple of 32: the edges are masked, and what is masked multiplies as 0.
    x, y = torch.randn(70, 90, device=DEVICE), torch.randn(90, 50, device=DEVICE)
    check("x @ y", matmul(x, y), x.double() @ y.double(), tolerance=1e-4)

    weight, bias = torch.randn(50, 90, device=DEVICE), torch.randn(50, device=DEVICE)
    expected = torch.relu(torch.nn.functional.linear(x.double(), weight.double(), bias.double()))
    check("relu(linear(x))", linear_relu(x, weight, bias), expected, tolerance=1e-4)

    if ON_GPU:
        halves = x.bfloat16(), y.bfloat16()
        exact = halves[0].double() @ halves[1].double()
        check("x @ y in bfloat16", matmul(*halves), exact, tolerance=0.2)
    else:
        say("bfloat16 products are left to a GPU: the interpreter would multiply their bits")


if __name__ == "__main__":
    main()
