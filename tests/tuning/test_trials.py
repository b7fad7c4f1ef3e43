"""What decides whether a config is right, without a GPU: references, errors, smaller calls."""

import io
import os
import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from jagged.kernels import hstu_attention
from jagged.tuning import operands, plan, trials
from jagged.tuning.cases import Case, default_cases
from jagged.tuning.configs import Config
from jagged.tuning.offline import H200, Target
from jagged.tuning.operands import Shape
from jagged.tuning.plan import Unit, units
from jagged.tuning.progress import Progress
from jagged.tuning.trials import DeviceLost, differs, references, smaller


def unit_of(op: str, direction: str, shape: Shape, dtype: torch.dtype = torch.bfloat16) -> Unit:
    found = units([Case(op, shape, dtype)], (9, 0))
    return next(unit for unit in found if unit.direction == direction)


@pytest.mark.parametrize("op", operands.OPS)
@pytest.mark.parametrize("direction", plan.DIRECTIONS)
def test_eager_in_the_same_dtype_passes_and_a_wrong_result_does_not(
    op: str, direction: str
) -> None:
    case = Case(op, Shape(6, 5, 16, heads=2), torch.float32)
    unit = next(u for u in units([case], (9, 0)) if u.direction == direction)
    args = case.arguments(direction, "cpu")
    exact, plain = references(unit, args)
    assert all(right.dtype == torch.float64 for right in exact)
    assert differs(plain if len(plain) > 1 else plain[0], exact, plain) == ""
    for i, result in enumerate(plain):
        if result.numel() == 0:
            continue
        wrong, absent = (
            tuple(change if j == i else other for j, other in enumerate(plain))
            for change in (result * 1.001, torch.full_like(result, torch.nan))
        )
        assert f"result {i} is wrong" in differs(wrong, exact, plain)
        assert f"result {i} is wrong" in differs(absent, exact, plain)


def test_one_wrong_element_is_seen() -> None:
    right = torch.randn(1000, 100, dtype=torch.float64)
    ours = right.float()
    ours[3, 4] += 0.01
    assert "error 1.0e-02" in differs(ours, (right,), (right.float(),))


def test_shapes_types_and_integers() -> None:
    right = torch.ones(3, dtype=torch.float64)
    plain = torch.ones(3)
    assert "not (3,)" in differs(torch.ones(4), (right,), (plain,))
    assert "bfloat16" in differs(plain.bfloat16(), (right,), (plain,))
    ids = torch.tensor([1, 2])
    assert differs(ids.clone(), (ids,), (ids,)) == ""
    assert differs(ids + 1, (ids,), (ids,)) == "result 0 differs"


def test_the_checked_call_is_smaller_where_it_launches_the_same() -> None:
    assert smaller(unit_of("softmax", "forward", Shape(4096, 64, 128))).shape.rows == 16
    # Attention of batches of short rows has kernels of its own from 256 rows on.
    short = unit_of("hstu_attention", "forward", Shape(4096, 64, 128))
    assert short.table.name == "attend_short"
    assert smaller(short).shape.rows == 256
    assert smaller(unit_of("softmax", "forward", Shape(8, 64, 128))).shape.rows == 8


@pytest.mark.parametrize("op", operands.OPS)
def test_every_op_has_something_to_tune(op: str) -> None:
    found = units(default_cases(op, "quick"), (9, 0))
    assert {unit.direction for unit in found} == {"forward", "backward"}
    for unit in found:
        assert unit.launches(unit.current), f"{unit.name} launches nothing"
        spaces = unit.table.space
        plain = unit.current.as_dict()
        assert any(space.choice(plain) is not None for space in spaces), (
            f"the space of {unit.table} has no place for {plain}"
        )


def test_the_case_that_is_called_most_is_measured() -> None:
    rare = Case("sum", Shape(16, 64, 32), calls=1)
    often = Case("sum", Shape(512, 65, 33), calls=9)
    found = units([rare, often], (9, 0))
    assert {unit.case.shape.rows for unit in found if unit.point == (2, 32, 64)} == {16}
    same = Case("sum", Shape(512, 70, 32), calls=9)
    assert {unit.case.shape.rows for unit in units([rare, same], (9, 0))} == {512}


def test_progress() -> None:
    stream, now = io.StringIO(), 0.0
    progress = Progress(4, stream, lambda: now)
    progress.show(0, "begins")
    now = 10.0
    progress.show(1, "one", end_at=15.0)
    progress.show(2, "two")
    progress.close()
    lines = stream.getvalue().splitlines()
    assert lines == [
        "[------------------------] 0/4 begins",
        "[######------------------] 1/4 one, 5 s left",
        "[############------------] 2/4 two, 10 s left",
    ]


def test_a_config_under_which_the_call_launches_another_kernel_is_dropped() -> None:
    case = Case("hstu_attention", Shape(512, 128, 128, heads=4))
    table = hstu_attention.FORWARD_SHORT
    (unit,) = (unit for unit in units([case], H200.capability) if unit.table is table)
    constants = {**unit.current.constants, "WIDTH": 64}
    other = Config(unit.current.settings, unit.current.form, constants)
    fit = trials.compiled(table.stem, table.name, case, "forward", other, H200)
    assert "launches another kernel" in fit.error


def test_the_config_that_broke_the_gpu_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that are timed together."""
    unit = unit_of("sum", "forward", Shape(4, 4, 32))
    configs = [unit.table.config({"block_sizes": [n], "num_warps": 1}) for n in (1, 2, 4)]
    ran: list[Config] = []

    def call(values: torch.Tensor) -> None:
        ran.append(unit.table.pick(values, 32, 4))
        if ran[-1] is configs[0]:
            raise RuntimeError("out of resources")  # the GPU goes on

    def synchronize(_device: torch.device) -> None:
        if ran and ran[-1] is configs[1]:
            raise RuntimeError("an illegal memory access was encountered")

    gpu = trials.GpuTrials.__new__(trials.GpuTrials)
    gpu._unit, gpu._args, gpu._device = unit, (torch.ones(16, 32),), torch.device("cpu")
    monkeypatch.setattr(trials.plan, "implementation", lambda *_: call)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    with pytest.raises(DeviceLost, match=r"'block_sizes': \[2\].* broke the GPU") as lost:
        gpu.times(unit, configs)
    assert lost.value.config is configs[1]
    assert ran == configs[:2]


def test_processes_that_compile_are_no_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork of a process, or of a server, that asked the CUDA driver anything gets no answer."""
    monkeypatch.setattr(Target, "of", lambda _device: H200)
    monkeypatch.setattr(trials, "Stopwatch", lambda *_, **__: SimpleNamespace(warm=lambda: None))
    # Who started the tests may have it ignored, as a shell does for what it runs behind itself.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    gpu = trials.GpuTrials(torch.device("cuda"), 1)
    try:
        for process in gpu._pool._processes:  # from the start: each imports torch for seconds
            status = Path(f"/proc/{process}/status").read_text()
            (ignored,) = re.findall(r"SigIgn:\s*(\w+)", status)
            assert int(ignored, 16) >> (signal.SIGINT - 1) & 1, "Ctrl-C is for the tuner alone"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        started = gpu._pool.submit(os.getppid).result()
        assert started == os.getpid()  # a server would be their parent
        assert gpu._pool._mp_context.get_start_method() == "spawn"  # type: ignore[attr-defined]
        (process,) = gpu._pool._processes.values()
        gpu._pool.submit(time.sleep, 600)  # as a long compilation, which nobody waits for any more
    finally:
        gpu.close()
        signal.signal(signal.SIGINT, before)
    process.join(20)
    assert not process.is_alive()
