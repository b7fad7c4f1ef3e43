"""A whole training step against the same model padded: `python -m bench.train_step`.

Lookup, HSTU layers, softmax over sampled negatives, backward pass, AdamW; bfloat16 autocast. The
padded model has the same parameters and, before anything is timed, the same loss and gradients on
some of the rows. It pads in each of the ways of `bench.padded_hstu`; the ratio is to the fastest of
them under torch.compile. The loss is taken on the events alone in all. Padded rows are as long as
the model allows, so that torch.compile has constant sizes; the longest of 1024 rows is hardly
shorter.

A line appears as soon as a provider is measured, the important ones first. Other processes fill
torch.compile's cache meanwhile, one for each compiled padded model; where one fails, that model has
no time.
"""

import argparse
import copy
import dataclasses
import datetime
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench import rows as results
from bench.measure import describe, quiet, refuse_waiting
from bench.padded_hstu import FORMS, PaddedModel
from bench.report import markdown
from bench.rows import Machine, Row
from bench.shapes import Law, skew, uniform
from examples.recommender.captured import CapturedStep
from examples.recommender.model import NextItemModel, hstu_encoder
from examples.recommender.settings import Settings
from jagged import JaggedTensor
from jagged.tuning.timing import Stopwatch, peak_memory

EAGER = tuple(f"torch-padded-{form}" for form in FORMS)
COMPILED = tuple(f"{padded}-compile" for padded in EAGER)
TUNED = tuple(f"{padded}-autotune" for padded in EAGER)
USUAL = ("jagged", "jagged-graph", *COMPILED, *EAGER)
PROVIDERS = (*USUAL, "jagged-compile", *TUNED)
# What torch.compile is told, by the last word of a provider's name.
COMPILE_MODES: dict[str, str | None] = {"compile": None, "autotune": "max-autotune-no-cudagraphs"}
LAWS: dict[str, Law] = {"skew": skew, "uniform": uniform()}
CHECKED_ROWS = 32
# Of the loss and of all gradients together, against float32: what bfloat16 may lose.
LOSS_ERROR, GRADIENT_ERROR = 2e-3, 5e-2


@dataclass(frozen=True)
class Sizes:
    """What the step consists of; no dropout, so that the two models can be compared."""

    rows: int
    longest: int
    width: int
    layers: int
    heads: int
    num_items: int
    negatives: int

    def settings(self) -> Settings:
        return Settings(
            layer="production",
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            max_length=self.longest,
            token_budget=self.rows * self.longest,
            negatives=self.negatives,
            dropout=0.0,
            input_dropout=0.0,
        )


GPU = Sizes(1024, 512, 256, 4, 4, 100_000, 1024)
SMALL = Sizes(24, 32, 32, 2, 2, 200, 20)


@dataclass(frozen=True, eq=False)
class Problem:
    """A batch of one law, and the negatives of its loss."""

    batch: JaggedTensor
    negatives: Tensor

    @classmethod
    def draw(cls, law: Law, sizes: Sizes, device: torch.device) -> "Problem":
        generator = torch.Generator().manual_seed(0)
        lengths = law(sizes.rows, sizes.longest, generator).to(torch.int64)
        total = int(lengths.sum())
        items, following = torch.randint(sizes.num_items, (2, total), generator=generator)
        batch = JaggedTensor.from_lengths(
            items, lengths, max_length=sizes.longest, weights=following
        )
        negatives = torch.randint(sizes.num_items, (sizes.negatives,), generator=generator)
        return cls(batch.to(device), negatives.to(device))

    def part(self, rows: int) -> "Problem":
        """The first rows of it."""
        return Problem(self.batch.select(slice(rows)), self.negatives)

    def emptied(self, rows: int) -> "Problem":
        """The same number of rows, all after the first `rows` empty: `part` in the whole's size."""
        batch = self.part(rows).batch
        ends = batch.offsets[-1:].expand(len(self.batch) - len(batch))
        longer = JaggedTensor(
            batch.values, torch.cat([batch.offsets, ends]), batch.max_length, batch.weights
        )
        return Problem(longer, self.negatives)


class Training:
    """One way to run the step, with weights and an optimizer of its own."""

    def __init__(self, provider: str, model: NextItemModel, sizes: Sizes) -> None:
        device = model.items.weight.device
        self.provider = provider
        self.sizes = sizes
        self.cuda = device.type == "cuda"
        words = provider.split("-")
        own = copy.deepcopy(model)
        self.model = PaddedModel(own, words[2]) if words[0] == "torch" else own
        self.function: nn.Module | Any = self.model
        self.compiled = words[-1] in COMPILE_MODES
        if self.compiled:
            self.function = torch.compile(
                self.model, fullgraph=True, dynamic=False, mode=COMPILE_MODES[words[-1]]
            )
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4, fused=True, capturable=self.cuda
        )

    def loss(self, problem: Problem) -> Tensor:
        if self.compiled:
            # Batches differ in their elements alone: the padded layers have constant sizes.
            for tensor in (problem.batch.values, problem.batch.weights):
                torch._dynamo.mark_dynamic(tensor, 0)
        with torch.autocast("cuda", torch.bfloat16, enabled=self.cuda):
            loss: Tensor = self.function(problem.batch, problem.negatives)
        return loss

    def step(self, problem: Problem) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(problem)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    def call(self, problem: Problem) -> Callable[[], object]:
        """The call that is timed."""
        if not self.provider.endswith("-graph"):
            return lambda: self.step(problem)
        step = CapturedStep(
            lambda batch, _: self.step(Problem(batch, problem.negatives)),
            capacity=problem.batch.values.shape[0],
            max_rows=len(problem.batch),
            max_length=self.sizes.longest,
            device=problem.batch.values.device,
        )
        for _ in range(5):  # past the capture
            step(problem.batch)
        return lambda: step(problem.batch)


def exact(model: NextItemModel, problem: Problem) -> list[Tensor]:
    """Loss and gradients of the padded model in float32, without autocast and compiler."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    padded = PaddedModel(copy.deepcopy(model), "copy")
    loss = padded(problem.batch, problem.negatives)
    gradients = torch.autograd.grad(loss, list(padded.parameters()))
    torch.set_float32_matmul_precision(before)
    return [loss.detach(), *gradients]


def check(training: Training, problem: Problem, wanted: Sequence[Tensor]) -> float:
    """The relative error of the loss.

    Raises:
        ArithmeticError: loss or gradients differ from the exact ones by more than rounding.
    """
    loss = training.loss(problem)
    gradients = torch.autograd.grad(loss, list(training.model.parameters()))
    error = abs(float(loss.detach()) / float(wanted[0]) - 1.0)
    apart = sum(
        float((ours - theirs).double().square().sum())
        for ours, theirs in zip(gradients, wanted[1:], strict=True)
    )
    whole = sum(float(theirs.double().square().sum()) for theirs in wanted[1:])
    gradient_error = (apart / whole) ** 0.5
    if not (error <= LOSS_ERROR and gradient_error <= GRADIENT_ERROR):
        raise ArithmeticError(
            f"loss off by {error:.1e} (at most {LOSS_ERROR:g}), gradients by {gradient_error:.1e} "
            f"(at most {GRADIENT_ERROR:g})"
        )
    return error


def model_of(sizes: Sizes, device: torch.device) -> NextItemModel:
    """The model whose weights all providers begin with."""
    torch.manual_seed(0)
    settings = sizes.settings()
    seen = torch.ones(sizes.num_items, dtype=torch.int64)
    return NextItemModel(hstu_encoder(settings), seen, settings).to(device)


def measure(
    machine: Machine,
    stopwatch: Stopwatch,
    sizes: Sizes,
    providers: Sequence[str],
    join: Callable[[str], int] = lambda _: 0,
) -> Iterator[Row]:
    """A row for each provider and law, as soon as it is known.

    `join` waits for the processes that compile ahead, since nothing is timed while they run, and
    returns the exit code of the one that compiles this provider, or 0.
    """
    device = stopwatch.device
    model = model_of(sizes, device)
    trainings = [Training(provider, model, sizes) for provider in providers]
    for name, law in LAWS.items():
        problem = Problem.draw(law, sizes, device)
        part = problem.emptied(CHECKED_ROWS)
        wanted = exact(model, problem.part(CHECKED_ROWS))
        dtype = "bfloat16" if device.type == "cuda" else "float32"
        blank = Row(machine, "train_step", "step", name, dtype, "")
        for training in trainings:
            row = dataclasses.replace(blank, provider=training.provider)
            try:
                with quiet():
                    # Every provider meets this law with the weights that the exact model has.
                    training.model.load_state_dict(weights_for(training.model, model))
                    if training.compiled and (code := join(training.provider)) != 0:
                        raise RuntimeError(f"the process that compiles it ended with code {code}")
                    error = check(training, part, wanted)
                    call = training.call(problem)
                    call()
                    join(training.provider)
                    refuse_waiting(call, device)
                    # A graph keeps its memory between steps: nothing would show.
                    graph = training.provider.endswith("-graph")
                    peak = None if graph else peak_memory(call, device)
                    timing = stopwatch.time(call)
                yield dataclasses.replace(
                    row,
                    p50_ms=timing.p50,
                    p20_ms=timing.p20,
                    p80_ms=timing.p80,
                    peak_mib=peak,
                    host_us=timing.host_us,
                    error=f"{error:.1e}",
                )
                del call
            except Exception as failure:
                yield dataclasses.replace(row, error=describe(failure))
            if device.type == "cuda":
                torch.cuda.empty_cache()


def compile_ahead(provider: str, sizes: Sizes, device: torch.device) -> None:
    """Run a compiled model once, so that another process finds its code in the cache."""
    model = model_of(sizes, device)
    problem = Problem.draw(LAWS["skew"], sizes, device)
    training = Training(provider, model, sizes)
    with quiet():
        check(training, problem.emptied(CHECKED_ROWS), exact(model, problem.part(CHECKED_ROWS)))


def weights_for(model: nn.Module, source: NextItemModel) -> dict[str, Tensor]:
    """The state of `source` under the names of `model`, which may be a module around such a one.

    Both have the same parameters in the same order.
    """
    return dict(zip(model.state_dict(), source.state_dict().values(), strict=True))


def table(rows: Sequence[Row], sizes: Sizes) -> str:
    """Markdown: a line for each provider and law, with its speed-up over the padded model.

    That is the fastest compiled one of the law; where one failed it is not known.
    """
    lines = []
    for row in rows:
        if row.p50_ms is None:
            lines.append([row.shape, row.provider, "failed", *[""] * 5, row.error])
            continue
        base = [r for r in rows if r.shape == row.shape and r.provider in (*COMPILED, *TUNED)]
        known = base and all(r.p50_ms is not None for r in base)
        ratio = f"{min(map(milliseconds, base)) / milliseconds(row):.2f}x" if known else ""
        memory = "" if row.peak_mib is None else f"{row.peak_mib / 1024:.2f}"
        host = "" if row.host_us is None else f"{row.host_us / 1e3:.2f}"
        rate = sizes.rows / milliseconds(row) * 1e3
        lines.append(
            [
                *(row.shape, row.provider, f"{row.p50_ms:.2f}", host, f"{rate:,.0f}"),
                *(ratio, memory, row.error, ""),
            ]
        )
    heading = ["rows", "provider", "device ms", "host ms", "sequences/s", "over padded"]
    return markdown([*heading, "peak GiB", "loss error", ""], lines, left=2)


def milliseconds(row: Row) -> float:
    """Of a step in a loop of steps: device and host work at the same time."""
    assert row.p50_ms is not None
    return max(row.p50_ms, (row.host_us or 0.0) * 1e-3)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.train_step", description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="on the CPU, with small sizes")
    parser.add_argument(
        "--provider",
        action="extend",
        nargs="+",
        choices=PROVIDERS,
        help=f"these (default: {', '.join(USUAL)}; the others take minutes to compile); each "
        "compiled padded model takes the memory of its step while all are compiled",
    )
    parser.add_argument("--rows", type=int, help=f"rows of a batch (default: {GPU.rows})")
    parser.add_argument("--budget-ms", type=float, default=300.0, help="sampling time of a step")
    parser.add_argument("--out", type=Path, help="folder of a CSV to append to: bench/results")
    parser.add_argument("--commit", help="what to call this state (default: the commit of git)")
    parser.add_argument("--fill-cache", choices=(*COMPILED, *TUNED), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.cpu and not torch.cuda.is_available():
        parser.error("there is no CUDA device: give --cpu to measure the CPU with small sizes")
    device = torch.device("cpu") if options.cpu else torch.device("cuda", 0)
    sizes = SMALL if options.cpu else GPU
    if options.rows is not None:
        sizes = dataclasses.replace(sizes, rows=options.rows)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32 for the scores, which are in float32
    if options.fill_cache is not None:
        compile_ahead(options.fill_cache, sizes, device)
        return 0
    no_cpu = ("-graph", *(f"-{way}" for way in COMPILE_MODES))
    usable = [p for p in PROVIDERS if not (options.cpu and p.endswith(no_cpu))]
    providers = [p for p in usable if p in (options.provider or USUAL)]
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    machine = results.machine(device, options.commit, date)
    path = None if options.out is None else options.out / results.file_name(machine)
    started = time.perf_counter()
    own = [sys.executable, "-m", "bench.train_step", "--rows", str(sizes.rows), "--fill-cache"]
    helpers = {p: subprocess.Popen([*own, p]) for p in providers if p in (*COMPILED, *TUNED)}

    def join(provider: str) -> int:
        codes = {name: helper.wait() for name, helper in helpers.items()}
        return codes.get(provider, 0)

    stopwatch = Stopwatch(device, budget_ms=options.budget_ms)
    stopwatch.warm()
    rows = []
    try:
        for row in measure(machine, stopwatch, sizes, providers, join):
            rows.append(row)
            print(f"{time.perf_counter() - started:4.0f} s  {summary(row, sizes)}", flush=True)
            if path is not None:
                results.write(path, [row])
    finally:
        for helper in helpers.values():
            helper.kill()
            helper.wait()
    print(f"\n{table(rows, sizes)}")
    if path is not None:
        print(f"\n{len(rows)} rows in {path}")
    return 0 if all(row.p50_ms is not None for row in rows) else 1


def summary(row: Row, sizes: Sizes) -> str:
    """One line."""
    if row.p50_ms is None:
        return f"{row.shape} {row.provider} failed: {row.error}"
    rate = sizes.rows / milliseconds(row) * 1e3
    return f"{row.shape} {row.provider}: {row.p50_ms:.2f} ms, {rate:,.0f} sequences/s"


if __name__ == "__main__":
    sys.exit(main())
