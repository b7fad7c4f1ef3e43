"""Step 5. Reading the generated Triton, and what is compiled into it.

`kernel.bind(args)` fixes what the code depends on (dtypes, device, whatever is static) and gives a
bound kernel; `bound.to_triton_code(config)` is its source. In it you find, from top to bottom:

- `_BLOCK_SIZE_0 = tl.constexpr(16)`: the config's block sizes
- a `@triton.jit` function: program id -> offsets -> `indices` and `mask` of each tile -> `tl.load`
  with pointer arithmetic and that mask -> your arithmetic, a line a node -> `tl.store`
- a host function of your kernel's name: the host half, then one launch with the grid, the pointers,
  those sizes and strides that are not compiled in, `num_warps` and `num_stages`

Comments name the source line that each part comes from. HELION_PRINT_OUTPUT_CODE=1 prints it all.

Each value that is compiled in makes the code simpler and is one more reason to compile anew:

| what | compiled in | compiled again for |
|---|---|---|
| `static_shapes=True` (default) | every size and stride | every new shape |
| `static_shapes=False` | no size (but a first call with a size of 1) | a new dtype |
| `hl.specialize(n)` in the kernel | that size, for every call | every new n |
| `torch._dynamo.mark_static(x, 1)` first | that size of that tensor | every new one marked |
| `index_dtype=torch.int64` | 64-bit addresses | nothing; else: a first tensor past 2^31 |

The number of elements of a jagged tensor changes from batch to batch, so its kernels want
`static_shapes=False` and `hl.specialize` for the width.
"""

import helion
import helion.language as hl
import torch

from examples.helion_tutorial.workshop import DEVICE, check, say

CONFIG = helion.Config(block_sizes=[16, 32])


@helion.kernel(config=CONFIG, static_shapes=True)
def twice_static(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile_m, tile_n in hl.tile([x.size(0), x.size(1)]):
        out[tile_m, tile_n] = x[tile_m, tile_n] * 2
    return out


@helion.kernel(config=CONFIG, static_shapes=False)
def twice(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile_m, tile_n in hl.tile([x.size(0), x.size(1)]):
        out[tile_m, tile_n] = x[tile_m, tile_n] * 2
    return out


@helion.kernel(config=CONFIG, static_shapes=False)
def twice_specialized(x: torch.Tensor) -> torch.Tensor:
    width = hl.specialize(x.size(1))
    out = torch.empty_like(x)
    for tile_m, tile_n in hl.tile([x.size(0), width]):
        out[tile_m, tile_n] = x[tile_m, tile_n] * 2
    return out


twice_wide = helion.kernel(twice.fn, config=CONFIG, static_shapes=False, index_dtype=torch.int64)


def device_function(code: str) -> str:
    """The `@triton.jit` function of a generated module."""
    begin = code.index("@triton.jit")
    return code[begin : code.index("\ndef ", begin + 20)]


def main() -> None:
    x = torch.randn(40, 96, device=DEVICE)
    code = twice.bind((x,)).to_triton_code(CONFIG)
    lines = [line.strip() for line in code.splitlines() if "tl.load" in line or "tl.store" in line]
    for line in lines:
        say(line)
    assert "_BLOCK_SIZE_0 = tl.constexpr(16)" in code

    # Sizes: in the arguments, or in the code.
    static = device_function(twice_static.bind((x,)).to_triton_code(CONFIG))
    assert "def _helion_twice_static(x, out):" in static
    assert "< 40" in static  # 96 needs no mask at all: a multiple of the block
    assert "< 40" not in device_function(code)
    say("static_shapes=True: 40 and 96 are in the code, no size or stride is an argument")

    # The same bound kernel, or another one?
    longer, wider = torch.randn(41, 96, device=DEVICE), torch.randn(40, 64, device=DEVICE)
    single = torch.randn(1, 96, device=DEVICE)
    assert twice_static.bind((longer,)) is not twice_static.bind((x,))
    for other in (longer, wider, single):
        assert twice.bind((other,)) is twice.bind((x,))
    say("static_shapes=False: one kernel for every size")
    assert twice_specialized.bind((longer,)) is twice_specialized.bind((x,))
    assert twice_specialized.bind((wider,)) is not twice_specialized.bind((x,))
    say("hl.specialize(width): one for each width, whatever the length")

    marked = torch.randn(40, 64, device=DEVICE)
    torch._dynamo.mark_static(marked, 1)
    assert twice.bind((marked,)) is not twice.bind((wider,))
    assert "< 64" in device_function(twice.bind((marked,)).to_triton_code(CONFIG))
    say("mark_static(x, 1): this tensor's width is compiled in, without a change to the kernel")

    # Two gigabytes that nobody touches: more elements than 32 bits can address.
    huge = torch.empty(2**16, 2**15 + 1, dtype=torch.int8, device=DEVICE)
    small = torch.zeros(8, 8, dtype=torch.int8, device=DEVICE)
    assert twice.bind((huge,)) is not twice.bind((small,))
    assert twice_wide.bind((huge,)) is twice_wide.bind((small,))
    assert "tl.int64" in device_function(twice_wide.bind((small,)).to_triton_code(CONFIG))
    say("index_dtype=torch.int64: one kernel on both sides of 2^31 elements")

    for kernel in (twice, twice_static, twice_specialized, twice_wide):
        check(kernel.fn.__name__, kernel(x), x * 2)
    check("marked", twice(marked), marked * 2)

    # Serving: a function for one config, called without any of Helion's lookups. Route by hand.
    bound = twice.bind((x,))
    few = bound.compile_config(helion.Config(block_sizes=[4, 32], num_warps=1))
    many = bound.compile_config(helion.Config(block_sizes=[64, 64], num_warps=8))
    for batch in (x, torch.randn(300, 96, device=DEVICE)):
        run = many if batch.size(0) > 100 else few
        check(f"routed by hand, {batch.size(0)} rows", run(batch), batch * 2)


if __name__ == "__main__":
    main()
