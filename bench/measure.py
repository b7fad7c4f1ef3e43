"""Measuring one case: contenders are checked against float64, then timed against each other."""

import contextlib
import dataclasses
import functools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bench import work
from bench.cases import Case
from bench.check import Wrong, poison, relative_error
from bench.contenders import Call, Contender
from bench.inputs import Inputs, Maker, make_inputs
from bench.limits import Limits
from bench.oracles import Exact, exact
from bench.rows import Machine, Row
from bench.shapes import Shape
from jagged.tuning.timing import Stopwatch, Timing, host_cost, peak_memory

MODES = ("forward", "backward")


class Fatal(Exception):
    """A contender took the device down: the process must be started anew without it."""

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(f"{label}: {reason}")
        self.label = label
        self.reason = reason


@dataclass
class Session:
    """What all cases of a run share."""

    machine: Machine
    stopwatch: Stopwatch
    limits: Limits
    modes: Sequence[str] = MODES
    chosen: Callable[[str], bool] = lambda provider: True
    broken: Mapping[str, str] = field(default_factory=dict)  # who took the device down, and how
    compile_until: float = float("inf")  # host time after which nothing is compiled any more

    @property
    def device(self) -> torch.device:
        return self.stopwatch.device

    def refuse_broken(self, row: Row) -> None:
        """Raise for a contender that took the device down in an earlier process of this run."""
        if label(row) in self.broken:
            raise RuntimeError(f"took the device down: {self.broken[label(row)]}")

    def require_device(self, row: Row, error: Exception) -> None:
        """Raise `Fatal` where the failure of a contender took the device's context with it."""
        if self.device.type != "cuda":
            return
        try:
            torch.cuda.synchronize(self.device)
        except RuntimeError:
            raise Fatal(label(row), describe(error)) from error


def label(row: Row) -> str:
    """A contender in one mode of one case."""
    return ":".join((*row.case, row.provider))


@dataclass(frozen=True)
class _Entrant:
    """A contender that passed."""

    contender: Contender
    run: Callable[[], object]
    error: float
    peak_mib: float | None


def measure(session: Session, case: Case, shape: Shape, dtype: torch.dtype) -> Iterator[Row]:
    """The rows of one case in all modes, those of a mode after one another."""
    device = session.device
    inputs = make_inputs(case.operands, shape, dtype, device)
    grad = Maker(dtype, device, seed=1)(*case.result(inputs))
    targets = None if inputs.attention is None else inputs.attention.num_targets
    sizes = work.sizes(shape, inputs.lengths, dtype, targets)
    exacts: dict[str, Exact] = {}

    def meaning(contender: Contender) -> Exact:
        if contender.mathematics not in exacts:
            wanted = grad if "backward" in session.modes else None
            exacts[contender.mathematics] = exact(
                case.meaning_of(contender), inputs, wanted, case.result(inputs)
            )
        return exacts[contender.mathematics]

    for mode in session.modes:
        backward = mode == "backward"
        blank = Row(session.machine, case.op, mode, shape.name, str(dtype)[6:], "")
        entrants: list[_Entrant] = []
        for contender in case.contenders:
            if not _takes_part(session, contender, inputs, shape, backward):
                continue
            row = dataclasses.replace(blank, provider=contender.provider)
            try:
                session.refuse_broken(row)
                if contender.compiled and time.perf_counter() > session.compile_until:
                    raise TimeoutError("left out: no time for torch.compile in a quick run")
                entrants.append(_enter(contender, inputs, grad, meaning(contender), backward))
            except Exception as error:
                session.require_device(row, error)
                yield dataclasses.replace(row, error=describe(error))
                _free(device)
        session.stopwatch.warm(0.05)
        with quiet():
            timings = session.stopwatch.compare([entrant.run for entrant in entrants])
        for entrant, timing in zip(entrants, timings, strict=True):
            row = dataclasses.replace(blank, provider=entrant.contender.provider)
            if isinstance(timing, Exception):
                session.require_device(row, timing)
                yield dataclasses.replace(row, error=describe(timing))
            else:
                yield _timed(row, timing, entrant, case.work(sizes, backward), session.limits)
        del entrants
        _free(device)


def _takes_part(
    session: Session, contender: Contender, inputs: Inputs, shape: Shape, backward: bool
) -> bool:
    on_cpu = inputs.device.type == "cpu"
    return (
        session.chosen(contender.provider)
        and contender.fits(inputs)
        and not (on_cpu and (contender.cuda_only or contender.compiled))
        and not (contender.compiled and inputs.leaves[0].dtype not in shape.compiled)
        and not (backward and not contender.backward)
    )


def _enter(
    contender: Contender, inputs: Inputs, grad: Tensor, exact: Exact, backward: bool
) -> _Entrant:
    """Prepare a contender, hold it against the oracle, see that it never waits for the device."""
    with quiet():
        prepared = contender.prepare(inputs.with_grad() if backward else inputs)
        run, error = check(prepared, inputs, grad, exact, backward)
        refuse_waiting(run, inputs.device)
        peak = peak_memory(run, inputs.device)
    return _Entrant(contender, run, error, peak)


def check(
    prepared: Call, inputs: Inputs, grad: Tensor, exact: Exact, backward: bool
) -> tuple[Callable[[], object], float]:
    """The call to time, and its (largest) relative error; raises `Wrong`."""
    dtype, device = grad.dtype, inputs.device
    run = backward_call(prepared, grad) if backward else prepared.run
    wanted = exact.gradients if backward else (exact.out,)
    poison([tuple(x.shape) for x in wanted], dtype, device)
    result = run()
    if backward:
        found = [form.back(x) for form, x in zip(prepared.forms, result, strict=True)]
    else:
        assert isinstance(result, Tensor)
        found = [prepared.result.back(result)]
    names = list(inputs.tensors) if backward else ["result"]
    errors = [
        relative_error(f"gradient of {name}" if backward else name, got, want, dtype)
        for name, got, want in zip(names, found, wanted, strict=True)
    ]
    return run, max(errors)


def backward_call(prepared: Call, grad: Tensor) -> Callable[[], Sequence[Tensor]]:
    """The backward pass alone: of a graph that is kept, or the contender's own function.

    Gradients are made contiguous: an expanded view only leaves the work to whoever reads it.
    """
    if prepared.gradients is not None:
        return prepared.gradients(grad)
    out = prepared.run()
    incoming = prepared.result.into(grad)

    def run() -> Sequence[Tensor]:
        gradients = torch.autograd.grad(out, prepared.leaves, incoming, retain_graph=True)
        return [gradient.contiguous() for gradient in gradients]

    return run


def refuse_waiting(run: Callable[[], object], device: torch.device) -> None:
    """Raise where a call waits for the device: a stall in training that its own time would hide."""
    if device.type != "cuda":
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    except RuntimeError as error:
        if "synchroniz" in str(error):
            raise Wrong("waits for the device inside the call, so it gets no time") from error
        raise
    finally:
        torch.cuda.set_sync_debug_mode("default")


def describe(error: BaseException) -> str:
    """A failure in one line."""
    text = " ".join(str(error).split())
    prefix = "wrong: " if isinstance(error, Wrong) else f"{type(error).__name__}: "
    return (prefix + text)[:240]


def _timed(row: Row, timing: Timing, entrant: _Entrant, amount: work.Work, limits: Limits) -> Row:
    seconds = timing.p50 * 1e-3
    floor = amount.floor_ms(limits.copy_gb_s, limits.matmul_tflop_s)
    return dataclasses.replace(
        row,
        p50_ms=timing.p50,
        p20_ms=timing.p20,
        p80_ms=timing.p80,
        gb_s=amount.bytes / seconds * 1e-9,
        tflop_s=amount.flops / seconds * 1e-12 if amount.flops else None,
        limit_share=floor / timing.p50,
        peak_mib=entrant.peak_mib,
        host_us=timing.host_us,
        error=f"{entrant.error:.1e}",
    )


def _free(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Peers warn about themselves (prototype, no autograd key): no news in a benchmark."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# Cost of a call on the host -------------------------------------------------------------------

_REPEATS = {"cuda": (10, 30, 100), "cpu": (3, 7, 10)}  # warm-up, new lengths, the same


def call_costs(session: Session, case: Case) -> Iterator[Row]:
    """What a forward call costs the host: without and with gradients, with never-seen totals."""
    shape = case.call
    dtype = shape.dtypes[0] if session.device.type == "cuda" else torch.float32
    lengths = shape.lengths()
    warm, new_ones, same_ones = _REPEATS[session.device.type]
    variants = []
    for extra in range(warm + new_ones):
        changed = lengths.clone()
        changed[0] = extra  # a total of its own
        variants.append(make_inputs(case.operands, shape, dtype, session.device, changed))
    for contender in case.contenders:
        if not _takes_part(session, contender, variants[0], shape, backward=False):
            continue
        for grad in (False, True) if contender.backward else (False,):
            mode = "call-grad" if grad else "call"
            row = Row(
                session.machine, case.op, mode, shape.name, str(dtype)[6:], contender.provider
            )
            try:
                session.refuse_broken(row)
                with quiet():
                    calls = [
                        contender.prepare(inputs.with_grad() if grad else inputs).run
                        for inputs in variants
                    ]
                    host_cost(calls[:warm], session.device)
                    new = host_cost(calls[warm:], session.device)
                    same = host_cost(calls[:1] * same_ones, session.device)
            except Exception as error:
                session.require_device(row, error)
                yield dataclasses.replace(row, error=describe(error))
                continue
            yield dataclasses.replace(row, host_us=same)
            yield dataclasses.replace(row, mode=f"{mode}-new", host_us=new)


def reference_costs(session: Session) -> Iterator[Row]:
    """The same of `torch.sum`, to which the cost of our calls is held."""
    device = session.device
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    for grad in (False, True):
        values = torch.randn(2048, 64, device=device).to(dtype).requires_grad_(grad)
        calls = [functools.partial(torch.sum, values, 0)] * 100
        host_cost(calls, device)
        yield Row(
            session.machine,
            "limits",
            "call-grad" if grad else "call",
            "2048x64",
            str(dtype)[6:],
            "torch-sum",
            host_us=host_cost(calls, device),
        )
