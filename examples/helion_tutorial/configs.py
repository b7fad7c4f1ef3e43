"""Step 4. Config and settings.

A **config** says how the GPU executes a kernel: it changes the time and never the result (apart
from the order of float additions). It is what a search finds, and what you keep:

- `block_sizes`: of each `hl.tile` and registered block, in the order of the source
- `num_warps`: groups of 32 threads that share a program; `num_stages`: loads ahead of their use
- `indexing`: pointers, block pointers or tensor descriptors, for each load and store
- `pid_type`: one program a tile ("flat"), or as many programs as fit the GPU ("persistent_...")
- `loop_orders`, `l2_groupings`, `range_unroll_factors`, ...: order and shape of loops

**Settings** say how Helion compiles: `static_shapes`, `index_dtype`, `autotune_effort`,
`print_output_code=True` and so on. No search touches them, and some do change the result
(`dot_precision`). Both stand in the decorator: `@helion.kernel(config=..., static_shapes=False)`.

The lists in a config are positional. Add a load to a kernel and its saved configs may mean
something else, so check them again; that is why this package's tests compile every config it ships.
"""

import json
import tempfile
from pathlib import Path

import helion
import helion.language as hl
import torch
from helion.exc import InvalidConfig

from examples.helion_tutorial.workshop import DEVICE, check, refused, say


# Without a config the first call would search for one. Effort "none" takes Helion's default, good
# for trying things out and slow on a GPU.
@helion.kernel(autotune_effort="none")
def centred(x: torch.Tensor) -> torch.Tensor:
    """x [M, N] minus the mean of each row."""
    m, n = x.size()
    out = torch.empty_like(x)
    for tile_m in hl.tile(m):
        total = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(n):
            total = total + x[tile_m, tile_n].sum(dim=1)
        for tile_n in hl.tile(n):
            out[tile_m, tile_n] = x[tile_m, tile_n] - (total / n)[:, None]
    return out


def main() -> None:
    x = torch.randn(60, 130, device=DEVICE)
    expected = x.double() - x.double().mean(1, keepdim=True)

    # The same kernel under several configs. `bind` fixes the kind of arguments, `compile_config`
    # gives a function for one config: no search, no lookup.
    bound = centred.bind((x,))
    for sizes, warps in (([1, 128, 128], 1), ([16, 32, 64], 4), ([64, 256, 256], 8)):
        config = helion.Config(block_sizes=sizes, num_warps=warps)
        run = bound.compile_config(config)
        check(f"block_sizes={sizes}, num_warps={warps}", run(x), expected)

    default = bound.config_spec.default_config()
    say(f"the default: block_sizes={default['block_sizes']}, {len(default)} values in all")

    # A found config is a small JSON file. What equals the default is left out before saving.
    found = helion.Config(**{**default.config, "block_sizes": [16, 64, 64], "num_warps": 2})
    minimal = found.minimize(bound.config_spec)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "centred.json"
        minimal.save(path)
        say(f"saved: {json.dumps(json.loads(path.read_text()))}")
        loaded = helion.Config.load(path)
    assert loaded == minimal
    assert helion.Config.from_json(loaded.to_json()) == helion.Config.from_dict(dict(loaded))

    # One config for all shapes, dtypes and devices: the simplest way to ship a kernel.
    fixed = helion.kernel(centred.fn, config=loaded)
    check("with the loaded config", fixed(x), expected)

    refused(
        "a config with too few block sizes",
        InvalidConfig,
        "expected 3 block sizes (one for each tiled dimension), got 1",
        lambda: bound.compile_config(helion.Config(block_sizes=[16])),
    )


if __name__ == "__main__":
    main()
