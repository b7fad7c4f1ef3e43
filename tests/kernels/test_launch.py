"""The launcher's table, without a GPU: what it compiles anew, how far it grows, several threads."""

import threading
import time
from collections.abc import Callable
from typing import Any

import helion.language as hl
import pytest
import torch
from torch import Tensor

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
    for total in range(2, 302):
        kernel(CONFIG, meta(total, 32), meta(3, total, 32), total, 16)
    assert len(compiled.bound) == 1
    assert len(compiled.launched) == 300


@pytest.mark.parametrize(
    "other",
    [
        (CONFIG, meta(9, 64), meta(3, 7, 32), 4, 16),
        (CONFIG, meta(9, 32), meta(3, 7, 64), 4, 16),
        (CONFIG, meta(9, 32, dtype=torch.float32), meta(3, 7, 32), 4, 16),
        (CONFIG, meta(1, 32), meta(3, 7, 32), 4, 16),
        (CONFIG, meta(9, 32), None, 4, 16),
        (CONFIG, meta(9, 32), meta(3, 7, 32), 4, 32),
        (Config({"num_warps": 1}), meta(9, 32), meta(3, 7, 32), 4, 16),
    ],
    ids=["width", "dense-width", "dtype", "one-element", "none", "constexpr", "config"],
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
    ],
    ids=["small", "large", "expanded", "strided"],
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


def test_a_kernel_without_a_tensor_is_refused(compiled: Compiled) -> None:
    with pytest.raises(TypeError, match="kernel was called without a tensor"):
        kernel(CONFIG, None, None, 4, 16)


def test_dynamic_names_an_argument() -> None:
    with pytest.raises(ValueError, match=r"has no arguments \['missing'\]"):
        Launchable(kernel.function, {"missing": (0,)}, False)


class Triton:
    """In place of a `JITFunction` and of what it compiles to."""

    function = 0
    packed_metadata = ()

    def __init__(self) -> None:
        self.looked_up = 0
        self.launched: list[tuple[Any, ...]] = []

    def run(self, *args: Any, **options: Any) -> "Triton":
        if options:  # as a JITFunction: looks up, launches, returns the kernel
            self.looked_up += 1
        else:
            self.launched.append(args)
        return self


def test_direct_launches_do_not_grow_with_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 5, raising=False)
    jit = Triton()

    def function(values: Tensor, total: int, _launcher: Callable[..., None]) -> None:
        _launcher(jit, (total,), values, total, 0.5, num_warps=1)

    direct = launch._Direct(function, torch.device("cuda", 0), {})
    values = torch.empty(64)
    for total in range(1, 301):
        direct(values, total)
    # A size of 1, a multiple of 16, any other: the classes that Triton specialises for.
    assert jit.looked_up == len(direct._kernels) == 3
    assert len(jit.launched) == 297
    assert jit.launched[-1][:4] == (300, 1, 1, 5)
    assert jit.launched[-1][-3:] == (values.data_ptr(), 300, 0.5)
