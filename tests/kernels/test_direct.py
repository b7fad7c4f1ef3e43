"""What is launched past Triton's `JITFunction`, without a GPU: what it looks up anew, and how."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
import triton
from triton import knobs
from triton.backends.nvidia.driver import CudaLauncher

from jagged.tuning._direct import direct, write
from jagged.tuning._host import Launch, Site


class Parameter(NamedTuple):
    """In place of Triton's: of a kernel's parameter."""

    is_constexpr: bool = False
    do_not_specialize: bool = False


class Triton:
    """In place of a `JITFunction` and of what it compiles to."""

    function = 3
    packed_metadata = (1, 1, 0)

    def __init__(self, *params: Parameter) -> None:
        self.params = params
        self.looked_up: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.launched: list[tuple[Any, ...]] = []

    def run(self, *args: Any, **options: Any) -> "Triton":
        if options:  # as a JITFunction: looks up, launches, returns the kernel
            self.looked_up.append((args, options))
        else:
            self.launched.append(args)
        return self


TENSOR, STRIDE, FLOAT = Parameter(), Parameter(), Parameter()
SIZE = Parameter(do_not_specialize=True)
CONSTANT = Parameter(is_constexpr=True)
HERE = 0


@pytest.fixture(autouse=True)
def on_device_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 5, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: HERE, raising=False)


def launcher(jit: Triton, *changing: Any, fixed: tuple[str | None, ...] = ()) -> Launch:
    """The launch of `jit` on a grid of one dimension, for arguments as these."""
    args = fixed or (None,) * len(jit.params)
    return write(Site(jit, 1, args, {"num_warps": 1}), changing, 0, {"maxnreg": 64})


def test_launches_do_not_grow_with_lengths() -> None:
    jit = Triton(TENSOR, STRIDE, SIZE, FLOAT)
    values = torch.empty(64)
    run = launcher(jit, values, 1, 1, 0.5)
    for total in range(1, 301):
        run(7, values, total, total, 0.5)
    # A stride of 1, a multiple of 16, any other: the classes that Triton specialises for.
    assert len(jit.looked_up) == 3
    assert len(jit.launched) == 297


def test_what_triton_gets() -> None:
    jit = Triton(TENSOR, STRIDE, CONSTANT, SIZE)
    values = torch.empty(64)
    run = launcher(jit, values, 9, fixed=(None, "64", "True", None))
    run(7, values, 9)
    args, options = jit.looked_up[0]
    assert args == (values, 64, True, 9)
    assert options == {"grid": (7, 1, 1), "warmup": False, "num_warps": 1, "maxnreg": 64}
    run(8, values, 10)
    expected = (8, 1, 1, 5, 3, (1, 1, 0), None, None, None, values.data_ptr(), 64, True, 10)
    assert jit.launched == [expected]


@pytest.mark.parametrize(
    "other",
    [
        (torch.empty(64)[1:], 32, 9, 0.5, 4),
        (torch.empty(64), 1, 9, 0.5, 4),
        (torch.empty(64), 33, 9, 0.5, 4),
        (torch.empty(64), 2**32, 9, 0.5, 4),
        (torch.empty(64), 32, 2**31, 0.5, 4),
        (torch.empty(64), 32, -(2**31) - 1, 0.5, 4),
        (torch.empty(64), 32, 9, 0.5, 32),
    ],
    ids=["address", "stride-1", "odd-stride", "wide-stride", "wide", "negative", "constant"],
)
def test_what_triton_compiles_for_has_its_own_kernel(other: tuple[Any, ...]) -> None:
    jit = Triton(TENSOR, STRIDE, SIZE, FLOAT, CONSTANT)
    run = launcher(jit, torch.empty(64), 32, 9, 0.5, 4)
    run(7, torch.empty(64), 32, 9, 0.5, 4)
    run(7, torch.empty(64), 48, 1, 1.0, 4)
    assert len(jit.looked_up) == 1
    run(7, *other)
    run(7, *other)
    assert len(jit.looked_up) == 2


def test_each_of_several_sizes_and_addresses_counts() -> None:
    jit = Triton(TENSOR, TENSOR, SIZE, SIZE)
    plain, odd = torch.empty(64), torch.empty(64)[1:]
    run = launcher(jit, plain, plain, 1, 1)
    calls: list[tuple[Any, ...]] = [
        (plain, plain, 1, 2),
        (odd, plain, 1, 2),
        (plain, odd, 1, 2),
        (plain, plain, 2**31, 2),
        (plain, plain, 2, 2**31),
        (plain, plain, -(2**40), 2**40 - 1),  # which hide each other in an "or"
    ]
    for number, call in enumerate(calls):
        run(7, *call)
        assert len(jit.looked_up) == number + 1
    run(7, plain, plain, -1, -2)  # 32 bits, as in the first
    run(7, plain, plain, -3, -4)
    assert len(jit.looked_up) == 7


@pytest.mark.parametrize(
    ("version", "scratch", "straight"),
    [("3.6.0", 0, True), ("3.6.0", 8, False), ("3.7.0", 0, False)],
)
def test_the_way_past_a_launcher_that_has_nothing_to_do(
    version: str, scratch: int, straight: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton, "__version__", version)
    seen: dict[str, tuple[Any, ...]] = {}

    class Launcher(CudaLauncher):  # type: ignore[misc]
        global_scratch_size, profile_scratch_size = 0, scratch
        launch_cooperative_grid, launch_pdl = False, True

        def __init__(self) -> None:
            """Nothing to compile."""

        def launch(self, *args: Any) -> None:
            seen["straight"] = args

        def __call__(self, *args: Any) -> None:
            seen["through"] = args

    class Compiled(Triton):
        def run(self, *_args: Any, **_options: Any) -> "Compiled":
            kernel = Compiled()
            kernel.run = Launcher()  # type: ignore[method-assign]
            return kernel

    values = torch.empty(64)
    run = launcher(Compiled(TENSOR), values)
    run(7, values)
    assert seen == {}
    run(7, values)
    between: tuple[Any, ...]
    if straight:
        between = (3, False, True, None, None, (1, 1, 0), None, None, None)
    else:
        between = (3, (1, 1, 0), None, None, None)
    args = (7, 1, 1, 5, *between, values.data_ptr())
    assert seen == {"straight" if straight else "through": args}


def test_a_profiler_sees_every_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    jit, values = Triton(TENSOR), torch.empty(64)
    run = launcher(jit, values)
    run(7, values)
    monkeypatch.setattr(knobs.runtime.launch_enter_hook, "calls", [print])
    run(7, values)
    run(7, values)
    assert len(jit.looked_up) == 3


def test_another_device_than_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    current = [1]

    @contextlib.contextmanager
    def device(index: int) -> Iterator[None]:
        before, current[0] = current[0], index
        yield
        current[0] = before

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current[0], raising=False)
    seen: list[int] = []

    class Watched(Triton):
        def run(self, *args: Any, **options: Any) -> Triton:
            seen.append(current[0])
            return super().run(*args, **options)

    values = torch.empty(64)
    run = launcher(Watched(TENSOR), values)
    run(7, values)
    run(7, values)
    assert seen == [0, 0]
    assert current == [1]


JIT = Triton(TENSOR, SIZE, STRIDE)


def generated(values: torch.Tensor, *, _launcher: Callable[..., None]) -> None:
    """As Helion writes it."""
    total = values.size(0)
    _launcher(JIT, ((total + 7) // 8,), values, total, values.stride(0), num_warps=2)


def test_a_host_function_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JIT, "looked_up", [])
    monkeypatch.setattr(JIT, "launched", [])
    function = direct(generated, 0, {("values", 0): 1}, {})
    for total in (64, 9, 77):
        function(torch.empty(total))
    args, options = JIT.looked_up[0]
    assert args[1:] == (64, 1)
    assert options == {"grid": (8, 1, 1), "warmup": False, "num_warps": 2}
    assert [(launch[0], *launch[-2:]) for launch in JIT.launched] == [(2, 9, 1), (10, 77, 1)]


def test_threads_launch_what_they_are_given() -> None:
    jit = Triton(TENSOR, SIZE)
    values = torch.empty(64)
    run = launcher(jit, values, 1)
    together = threading.Barrier(8)

    def call(size: int) -> None:
        together.wait()
        for _ in range(100):
            run(size, values, size)

    threads = [threading.Thread(target=call, args=(size,)) for size in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(launch[0] == launch[-1] for launch in jit.launched)
    assert len(jit.launched) + len(jit.looked_up) == 800
