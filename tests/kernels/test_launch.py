"""The launcher's table, without a GPU: what it compiles anew, how far it grows, several threads."""

import threading
import time
from collections.abc import Callable
from typing import Any

import helion.language as hl
import pytest
import torch
from torch import Tensor
from triton.runtime import OutOfResources

from jagged.tuning import launch
from jagged.tuning.configs import Config
from jagged.tuning.launch import Launchable, launchable

CONFIG = Config({"num_warps": 1})


class Compiled:
    """In place of Helion's bound kernel: counts what is compiled and launched."""

    def __init__(self) -> None:
        self.bound: list[bool] = []  # whether with 64-bit addresses
        self.launched: list[tuple[Any, ...]] = []
        self.pause = 0.0

    def bind(self, _config: Config, _args: Any, wide: bool = False) -> "Compiled":
        time.sleep(self.pause)
        self.bound.append(wide)
        return self

    def compile_config(self) -> Callable[..., None]:
        return lambda *args: self.launched.append(args)


@launchable(dynamic={"dense": (0, 1)})
def kernel(values: Tensor, dense: Tensor | None, steps: int, BLOCK: hl.constexpr) -> None:
    raise AssertionError("never traced here")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Compiled:
    made = Compiled()
    monkeypatch.setattr(kernel, "_compiled", {})
    monkeypatch.setattr(kernel, "bind", made.bind)
    return made


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def test_total_lengths_share_one_entry(compiled: Compiled) -> None:
    for total in range(1, 301):
        kernel(CONFIG, meta(total, 32), meta(3, total, 32), total, 16)
    assert len(compiled.bound) == 1
    assert len(compiled.launched) == 300


RANKS = ("rank-1", "rank-3", "dense-rank-2", "dense-rank-1")


@pytest.mark.parametrize(
    "other",
    [
        (CONFIG, meta(9, 64), meta(3, 7, 32), 4, 16),
        (CONFIG, meta(9, 32), meta(3, 7, 64), 4, 16),
        (CONFIG, meta(9, 32, dtype=torch.float32), meta(3, 7, 32), 4, 16),
        (CONFIG, meta(9, 64)[:, :32], meta(3, 7, 32), 4, 16),
        (CONFIG, meta(9, 32), None, 4, 16),
        (CONFIG, meta(9), meta(3, 7, 32), 4, 16),
        (CONFIG, meta(9, 32, 1), meta(3, 7, 32), 4, 16),
        (CONFIG, meta(9, 32), meta(3, 7), 4, 16),
        (CONFIG, meta(9, 32), meta(3), 4, 16),
        (CONFIG, meta(9, 32), meta(3, 7, 32), 4, 32),
        (Config({"num_warps": 1}), meta(9, 32), meta(3, 7, 32), 4, 16),
    ],
    ids=["width", "dense-width", "dtype", "strided", "none", *RANKS, "constexpr", "config"],
)
def test_what_specialises_has_its_own_entry(compiled: Compiled, other: tuple[Any, ...]) -> None:
    kernel(CONFIG, meta(9, 32), meta(3, 7, 32), 4, 16)
    kernel(*other)
    kernel(*other)
    assert len(compiled.bound) == 2


@pytest.mark.parametrize(
    ("values", "wide"),
    [
        (meta(2**20, 32), False),
        (meta(2**27, 32), True),
        (meta(1, 32).expand(2**27, 32), True),
        (meta(2**20, 4096)[:, :32], True),
        (meta(2**10, 4096)[:, :32], False),
        (meta(2**18, 4096)[:, :32], False),
    ],
    ids=["small", "large", "expanded", "strided", "view", "view-of-much"],
)
def test_addresses_of_64_bits_where_needed(compiled: Compiled, values: Tensor, wide: bool) -> None:
    kernel(CONFIG, values, None, 4, 16)
    assert compiled.bound == [wide]


def test_the_table_is_bounded(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "MAX_ENTRIES", 4)
    for width in range(2, 22):
        kernel(CONFIG, meta(9, width), None, 4, 16)
        assert len(kernel._compiled) <= 4
    kernel(CONFIG, meta(9, 21), None, 4, 16)
    assert len(compiled.bound) == 20  # the newest entries are those that stayed


def test_threads_compile_once(compiled: Compiled) -> None:
    compiled.pause = 0.05
    together = threading.Barrier(8)

    def call(total: int) -> None:
        together.wait()
        kernel(CONFIG, meta(total, 32), None, 4, 16)

    threads = [threading.Thread(target=call, args=(total,)) for total in range(2, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled.bound) == 1
    assert len(compiled.launched) == 8


class Small(Compiled):
    """A GPU whose shared memory has room for so many stages."""

    def __init__(self, stages: int) -> None:
        super().__init__()
        self.stages = stages
        self.tried: list[int] = []

    def bind(self, config: Config, _args: Any, wide: bool = False) -> "Small":
        self.tried.append(config.settings["num_stages"])
        return self

    def compile_config(self) -> Callable[..., None]:
        wanted = self.tried[-1]

        def launch(*args: Any) -> None:
            if wanted > self.stages:
                raise OutOfResources(wanted * 1000, self.stages * 1000, "shared memory")
            self.launched.append(args)

        return launch


def test_a_pipeline_too_long_for_this_gpu_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Small(1)
    monkeypatch.setattr(kernel, "_compiled", {})
    monkeypatch.setattr(kernel, "bind", small.bind)
    config = Config({"num_warps": 4, "num_stages": 3}, "row", {"BLOCK": 64}, 128)
    for _ in range(2):
        kernel(config, meta(9, 32), None, 4, 16)
    assert small.tried == [3, 2, 1]  # and what fits is kept
    assert len(small.launched) == 2
    assert len(kernel._compiled) == 1


def test_what_does_not_fit_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Small(0)
    monkeypatch.setattr(kernel, "_compiled", {})
    monkeypatch.setattr(kernel, "bind", small.bind)
    wanted = (
        r"kernel with Config\(.*\) does not fit meta: shared memory 2000, of which it has 0; find"
    )
    with pytest.raises(ValueError, match=wanted):
        kernel(Config({"num_stages": 2}), meta(9, 32), None, 4, 16)
    assert small.tried == [2, 1]


def test_none_for_one_is_not_none_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Compiled()

    @launchable()
    def norm(values: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
        raise AssertionError("never traced here")

    monkeypatch.setattr(norm, "bind", made.bind)
    norm(CONFIG, meta(9, 32), meta(32), None)
    norm(CONFIG, meta(9, 32), None, meta(32))
    norm(CONFIG, meta(9, 32), None, torch.nn.Parameter(meta(32)))
    assert len(made.bound) == 2


def test_a_kernel_without_a_tensor_is_refused() -> None:
    def no_tensor(values: Tensor | None, steps: int) -> None:
        raise AssertionError("never traced here")

    with pytest.raises(ValueError, match="no_tensor needs an argument that is always a tensor"):
        launchable()(no_tensor)


def test_dynamic_dimensions_come_first() -> None:
    with pytest.raises(ValueError, match=r"dynamic dimensions of values must be the first.*\(1,\)"):
        Launchable(kernel.function, {"values": (1,)}, False)


def test_dynamic_names_an_argument() -> None:
    with pytest.raises(ValueError, match=r"has no arguments \['missing'\]"):
        Launchable(kernel.function, {"missing": (0,)}, False)


def test_products_of_float32_have_an_entry_a_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Compiled()

    @launchable(dot=True)
    def product(values: Tensor, out: Tensor) -> None:
        raise AssertionError("never traced here")

    monkeypatch.setattr(product, "bind", made.bind)
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        for dtype in (torch.float32, torch.bfloat16):
            for precision in ("ieee", "tf32", "ieee"):
                torch.backends.cuda.matmul.fp32_precision = precision
                product(CONFIG, meta(9, 32, dtype=dtype), meta(9, 32))
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert len(made.bound) == 3
    assert len(made.launched) == 6
