"""Step 7. Many shapes, many GPUs, no search: `helion.aot_kernel`.

A search on a user's first call is too slow, one fixed config too coarse. An ahead-of-time kernel
asks a small file of plain Python instead, which you commit beside the kernel's source:

    _helion_aot_<stem of the source file>_<device>_sm<NN>.py

with two functions for each kernel: `key_<kernel>` (which config, by number) and `autotune_<kernel>`
(that config). Helion looks for the file in HELION_HEURISTIC_DIR, then beside the source; for the
GPU's own compute capability, then for older compatible ones. So a table for sm90 serves an sm100
until somebody makes one. Where there is no file, the default config runs, with one warning.

The files are made on each kind of GPU, from a script that calls the kernel with typical shapes:

    python -m helion.autotuner.aot_runner -- python my_shapes.py

searches for each shape (minutes for each), times every winner on every shape, keeps the few configs
that are never much slower than the best, and grows a decision tree over the arguments' features.
With `key=` the features are yours. For jagged arguments choose what the host knows: the width, and
the mean length rounded to a power of two. This package's own tables are such files.

| you have | take |
|---|---|
| one shape, one GPU | `config=helion.Config.load(...)` |
| a handful of shapes | `configs=[...]` and `key=` |
| many shapes or GPUs, no tuning when deployed | `aot_kernel` and its runner |
| many machines that tune alike | a remote cache |
| none of these | the cache on disk, which needs nothing |
"""

import importlib.util
import os
import tempfile
from pathlib import Path
from unittest import mock

import helion
import helion.language as hl
import torch

from examples.helion_tutorial.workshop import DEVICE, ON_GPU, check, chosen, say

TABLE = '''
"""Configs of scale_rows on compute capability {capability}."""


def key_scale_rows(width, *rest):
    return 0 if width <= 64 else 1


def autotune_scale_rows(width, *rest):
    configs = [
        {{"block_sizes": [32, 64], "num_warps": 2}},
        {{"block_sizes": [8, 256], "num_warps": 4}},
    ]
    return configs[key_scale_rows(width)]
'''


def features(x: torch.Tensor, factors: torch.Tensor) -> tuple[int, ...]:
    """What the table decides by."""
    return (x.size(1),)


def scale_rows(x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """x [M, N] with row i times factors [M]."""
    m, n = x.size()
    out = torch.empty_like(x)
    for tile_m, tile_n in hl.tile([m, n]):
        out[tile_m, tile_n] = x[tile_m, tile_n] * factors[tile_m][:, None]
    return out


def main() -> None:
    major, minor = torch.cuda.get_device_capability() if ON_GPU else (9, 0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"_helion_aot_deployment_cuda_sm{major}{minor}.py"
        path.write_text(TABLE.format(capability=f"{major}.{minor}"))
        if ON_GPU:
            # The second: else Helion makes a folder .helion_aot where the process stands.
            places = {"HELION_HEURISTIC_DIR": folder, "HELION_AOT_DATA_DIR": folder}
            with mock.patch.dict(os.environ, places):
                looked_up()
        else:
            by_hand(path)


def looked_up() -> None:
    """Helion finds the table for this GPU."""
    kernel = helion.aot_kernel(key=features)(scale_rows)
    factors = torch.randn(100, device=DEVICE)
    for width, blocks in ((48, [32, 64]), (200, [8, 256])):
        x = torch.randn(100, width, device=DEVICE)
        check(f"width {width}", kernel(x, factors), x * factors[:, None])
        assert chosen(kernel, x, factors)["block_sizes"] == blocks
        say(f"chosen: {chosen(kernel, x, factors)}")


def by_hand(path: Path) -> None:
    """Without a GPU there is no capability to look up: call the table's function."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    factors = torch.randn(100, device=DEVICE)
    for width, blocks in ((48, [32, 64]), (200, [8, 256])):
        x = torch.randn(100, width, device=DEVICE)
        config = helion.Config(**table.autotune_scale_rows(*features(x, factors)))
        kernel = helion.aot_kernel(config=config)(scale_rows)
        check(f"width {width}", kernel(x, factors), x * factors[:, None])
        assert config["block_sizes"] == blocks
        say(f"chosen: {config}")


if __name__ == "__main__":
    main()
