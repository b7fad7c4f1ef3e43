"""Step 6. Finding a config.

A kernel of two tiles has thousands of configs, and which one is fast depends on the GPU and on the
shape. Without `config=` the first call searches: it generates configs, compiles each, checks its
result against the default's, times it, keeps the good ones and varies them, generation by
generation. (The default search learns from its timings which candidates to try; others, such as
differential evolution, cross and mutate.) Effort "full" takes some ten minutes a shape, as Helion's
documentation has it, "quick" far less; a budget in seconds ends either with the best so far.

The winner is cached on disk, for this GPU, kind of arguments and kernel source: the next process
finds it. Switches, all of them environment variables:

| variable | effect |
|---|---|
| HELION_CACHE_DIR | where configs are cached |
| HELION_AUTOTUNE_EFFORT | none, quick, full |
| HELION_AUTOTUNE_BUDGET_SECONDS | ends a search |
| HELION_FORCE_AUTOTUNE=1 | search although there is a cached config, and cache the new one |
| HELION_SKIP_CACHE=1 | neither read nor write the cache |
| HELION_ASSERT_CACHE_HIT=1 | an error where the cache has no config: for CI |
| HELION_DISALLOW_AUTOTUNING=1 | an error instead of a search: for production |
| HELION_AUTOTUNE_CACHE | LocalAutotuneCache; StrictLocalAutotuneCache (versions count too); \
RemoteAutotuneCache; AOTAutotuneCache (the next step) |
| HELION_REMOTE_CACHE_BACKEND | with RemoteAutotuneCache: the class that talks to the server, such \
as jagged.tuning.remote.RedisBackend, so that a team tunes each shape once |

Where you know a few good configs, give them with `configs=[...]`: they are timed once for each new
kind of arguments, in seconds. `key=` says what a new kind is beside dtypes and static sizes.
"""

import tempfile
from pathlib import Path
from typing import Any

import helion
import helion.language as hl
import torch
from helion.autotuner import RandomSearch

from examples.helion_tutorial.workshop import DEVICE, ON_GPU, SEARCH, check, chosen, say

SMALL = helion.Config(block_sizes=[64], num_warps=1)
LARGE = helion.Config(block_sizes=[1024], num_warps=4)


def size_class(x: torch.Tensor, y: torch.Tensor) -> int:
    """Choose again whenever the number of elements passes a power of two."""
    return int(helion.next_power_of_2(x.numel()))


@helion.kernel(configs=[SMALL, LARGE], key=size_class, static_shapes=False, **SEARCH)
def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x * y, elementwise."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * y[tile]
    return out


def some_random_configs(bound: Any, args: Any, **options: Any) -> RandomSearch:
    """A short search that caches nothing: on a CPU there is no GPU to cache for."""
    return RandomSearch(bound, args, count=3)


def pair(elements: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = torch.randn(2, elements, device=DEVICE)
    return x, y


def main() -> None:
    # A choice for each class of sizes.
    for elements in (100, 120, 5000):
        x, y = pair(elements)
        check(f"x * y, {elements} elements", product(x, y), x * y)
    assert product.bind(pair(100)) is product.bind(pair(120))
    assert product.bind(pair(100)) is not product.bind(pair(5000))
    for elements in (100, 5000):
        say(f"chosen for {elements} elements: {chosen(product, *pair(elements))}")

    # A search. `autotune` gives the config, and the kernel runs with it from now on.
    options: dict[str, Any] = {"autotune_effort": "quick", "autotune_budget_seconds": 8}
    if not ON_GPU:
        options = {"autotuner_fn": some_random_configs, "autotune_random_seed": 0, **SEARCH}
    searched = helion.kernel(product.fn, **options)
    args = pair(300)
    best = searched.autotune(args)
    check("with the config of a search", searched(*args), args[0] * args[1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "product.json"
        best.save(path)
        say(f"found: {helion.Config.load(path).minimize(searched.bind(args).config_spec)}")

    # A warm start: what the cache has for this GPU and these arguments, and what you add.
    warm = helion.kernel(
        product.fn, autotuner_fn=helion.from_cache(max_configs=5, configs=[SMALL, LARGE]), **SEARCH
    )
    again = warm.autotune(args)
    check("with the best of the cache and two more", warm(*args), args[0] * args[1])
    say(f"chosen: block_sizes={again['block_sizes']}")


if __name__ == "__main__":
    main()
