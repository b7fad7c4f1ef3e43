"""Every op and every form of its kernels once, for NVIDIA's compute-sanitizer.

    compute-sanitizer --tool memcheck --error-exitcode 9 python -m tests.kernels.memcheck

Small rows, empty ones among them, a capacity tail of NaN, exact allocations and strided views,
bfloat16 and float32, forward and backward. The public ops run the cases of `tests/ops`; the kernels
run those of `tests/kernels/cases_*.py` with shipped configs. Each result is compared with what the
CPU gives in float64. Torch's caching allocator is off, so that an access past a tensor is one past
an allocation. A plain run before fills Triton's cache: under the sanitizer compiling is slow.
"""

import argparse
import contextlib
import fnmatch
import itertools
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from bench.check import Wrong, relative_error
from jagged import HSTUMask
from jagged.tuning.configs import Config, ConfigTable
from jagged.tuning.decision import Point
from tests.kernels.cases import Case, all_cases
from tests.ops import attention, battery
from tests.ops.attention import AttentionCase
from tests.ops.battery import OpCase, outgoing

LENGTHS = (5, 0, 150, 1, 0, 16, 0)  # 150: several blocks
MANY = (7, 0, 1, 16) * 75  # enough rows for the kernels of short ones
MANY_AND_LONG = (200, *MANY)  # for the search of a row, where few rows are as long as the longest
TAIL = 6
DTYPES = {2: torch.bfloat16, 4: torch.float32}
EVERY_MASK = HSTUMask(window=5, contextual=2, min_full=3)


class Run(NamedTuple):
    """`results` takes a device; `exact` is what they are, in float64 on the CPU."""

    name: str
    dtype: torch.dtype
    results: Callable[[torch.device], Sequence[Tensor]]
    exact: Callable[[], Sequence[Tensor]]


# The public ops -------------------------------------------------------------------------------


def short_attention(features: int, **options: Any) -> AttentionCase:
    """Heads and rows for which there are kernels of their own."""
    arguments = attention.attention(features=features, value_features=features, **options)
    label = f"short-{features}" + ("-all" if options else "")
    return AttentionCase("hstu_attention", arguments, ("q", "k", "v"), ("q", "k", "v"), label=label)


SHORT_CASES = [
    short_attention(features, **options)
    for features in (64, 128)
    for options in ({}, {"mask": EVERY_MASK, "targets": True, "per_query": True})
]


def op_runs() -> Iterator[Run]:
    """Float32 as strided views with int64 offsets, bfloat16 as whole tensors with int32."""
    for dtype, offsets, strided in (
        (torch.float32, torch.int64, True),
        (torch.bfloat16, torch.int32, False),
    ):
        for case in (*battery.CASES, *attention.CASES):
            yield op_run(case, battery.Make(LENGTHS, CPU, dtype, offsets, TAIL), strided)
    for case in SHORT_CASES:
        for lengths in (MANY, MANY_AND_LONG):
            yield op_run(case, battery.Make(lengths, CPU, torch.bfloat16, tail=TAIL), strided=False)


def op_run(case: OpCase, make: battery.Make, strided: bool) -> Run:
    # Drawn and computed on the CPU: elsewhere a timestamp might be rounded otherwise.
    arguments = case.make(make)

    def call(change: Callable[[Any], Any]) -> list[Tensor]:
        given = {name: change(value) for name, value in arguments.items()}
        for name in case.operands:
            given[name] = given[name].detach().requires_grad_()
        out = case.call(given)
        grad = change(outgoing(case, out.detach().to(CPU, make.dtype), make))
        found = torch.autograd.grad(out, [given[name] for name in case.operands], grad)
        return [out.detach(), *found]

    return Run(
        f"{case} {str(make.dtype)[6:]}",
        make.dtype,
        lambda device: call(lambda value: moved(value, device, strided)),
        lambda: call(doubled),
    )


# The kernels with their shipped configs -------------------------------------------------------


class Make:
    """`tests.kernels.cases.Make` on the CPU."""

    def __init__(self, dtype: torch.dtype, width: int, seed: int) -> None:
        self.dtype = dtype
        self.rows = len(LENGTHS)
        self.total = sum(LENGTHS) + TAIL
        self.width = width
        self.longest = max(LENGTHS)
        self._offsets = torch.tensor([0, *LENGTHS]).cumsum(0)
        self._generator = torch.Generator().manual_seed(seed)

    def offsets(self) -> Tensor:
        return self._offsets

    def values(self, *trailing: int, dtype: torch.dtype | None = None) -> Tensor:
        data = self.dense(self.total, *trailing, dtype=dtype)
        if data.is_floating_point():
            data[-TAIL:] = torch.nan
        return data

    def per_row(self, *trailing: int, dtype: torch.dtype | None = None) -> Tensor:
        return self.dense(self.rows, *trailing, dtype=dtype)

    def dense(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.randn(shape, generator=self._generator).to(dtype or self.dtype)


def kernel_runs(every: bool) -> Iterator[Run]:
    """A config of each form and dtype, or every one; short rows are left to the public op."""
    for case in all_cases():
        if "short" in case.label:
            continue
        tables = sorted({name for form in case.forms.values() for name in form})
        seen = set()
        for table in tables:
            owner: ConfigTable = getattr(case.module(), table)
            for (_, point), config in owner.all().items():
                form = id(config) if every else (config.form, *config.constants)
                which = (table, form, point[0])
                if which not in seen:
                    seen.add(which)
                    yield kernel_run(case, owner, point, config)


def kernel_run(case: Case, owner: ConfigTable, point: Point, config: Config) -> Run:
    """Bfloat16 as strided views, float32 as whole tensors: the other way round than `op_runs`."""
    itemsize, width, _ = point
    dtype = DTYPES[itemsize]
    name = f"{case} {owner} {config.form or 'plain'} {point}"

    def arguments(change: Callable[[Any], Any]) -> list[Any]:
        given = case.arguments(Make(dtype, width, zlib.crc32(name.encode())))
        return [change(value) for value in given]

    def results(device: torch.device) -> Sequence[Tensor]:
        given = arguments(lambda value: moved(value, device, dtype == torch.bfloat16))
        with mock.patch.object(owner, "pick", return_value=config):
            return as_tuple(getattr(case.module(), case.direction)(*given))

    return Run(name, dtype, results, lambda: as_tuple(case.answer(*arguments(doubled))))


def as_tuple(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


# ----------------------------------------------------------------------------------------------

CPU = torch.device("cpu")


def moved(value: Any, device: torch.device, strided: bool) -> Any:
    """On the device, in an allocation of its own or as a view of a wider one with NaN around."""
    if not isinstance(value, Tensor):
        return value
    value = value.to(device, copy=True)
    if not strided or not value.is_floating_point() or value.ndim < 2:
        return value
    gap = torch.full_like(value, torch.nan)
    return torch.cat([gap, value, gap], -1).narrow(-1, value.shape[-1], value.shape[-1])


def doubled(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def check(run: Run, device: torch.device) -> float:
    """The largest relative error; raises `bench.check.Wrong` where one is too large."""
    found, exact = run.results(device), run.exact()
    errors = []
    for place, (ours, wanted) in enumerate(zip(found, exact, strict=True)):
        # The copy to the host also shows initcheck an element that nobody wrote.
        ours = ours.cpu()
        if wanted.is_floating_point():
            errors.append(relative_error(f"result {place}", ours, wanted, run.dtype))
        elif torch.equal(ours, wanted):
            errors.append(0.0)
        else:
            raise Wrong(f"result {place} has other integers")
    return max(errors)


def runs(device: torch.device, every: bool) -> list[Run]:
    """All; on the CPU those of the public ops alone."""
    kernels = kernel_runs(every) if device.type == "cuda" else ()
    return list(itertools.chain(op_runs(), kernels))


def use_exact_allocations() -> None:
    """Switch torch's caching allocator off; to be called before the first CUDA tensor is made."""
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    torch.empty(1, device="cuda")
    if torch.cuda.memory_reserved():
        raise RuntimeError("torch's caching allocator must be off, but it reserved memory")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kernels.memcheck", description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--share", default="0/1", help="I/N: of N processes, this is number I")
    parser.add_argument(
        "--only", action="extend", nargs="+", help="cases of these names (patterns: '*bmm*')"
    )
    parser.add_argument("--every", action="store_true", help="every shipped config of the kernels")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if device.type == "cuda":
        use_exact_allocations()
    share, _, shares = options.share.partition("/")
    patterns = options.only or ["*"]
    chosen = [
        run
        for run in runs(device, options.every)
        if any(fnmatch.fnmatch(run.name, pattern) for pattern in patterns)
    ]
    mine = chosen[int(share) :: int(shares)]
    start, wrong, done = time.perf_counter(), 0, 0
    for run in mine:
        try:
            print(f"{run.name}: {check(run, device):.1e}", flush=True)
        except Exception as error:
            wrong += 1
            print(f"BAD {run.name}: {type(error).__name__} {str(error)[:300]}", flush=True)
        done += 1
        if device.type == "cuda":
            with contextlib.suppress(RuntimeError):
                torch.cuda.synchronize()
                continue
            print("the device context is lost", flush=True)
            break
    print(
        f"{done} of {len(mine)} cases ran in {time.perf_counter() - start:.0f} s, {wrong} are wrong"
    )
    return 1 if wrong or done < len(mine) or not done else 0


if __name__ == "__main__":
    sys.exit(main())
