"""Where the time of an HSTU layer goes: attention, projections, the rest: `python -m bench.layer`.

The layer is first held against the same layer in float64 on the CPU, on two rows. Then its parts
are timed one by one, forward and backward, on the tensors that they get in the layer, and the layer
as a whole. `rest` is what is neither attention nor a matrix product; `torch` is the same norm,
gate, dropout and concatenation of plain torch functions. Lines come as they are measured.
"""

import argparse
import copy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.check import DTYPES, TOLERANCE, relative_error
from bench.measure import quiet
from bench.shapes import uniform
from jagged import JaggedTensor
from jagged.modules import HSTUConfig, HSTULayer
from jagged.tuning.timing import Stopwatch

GROUPS = {
    "attention": ("attention",),
    "projections": ("projection", "output"),
    "rest": ("norm", "gate", "residual"),
}


@dataclass(frozen=True)
class Part:
    """A piece of the layer: its function, and what that takes and differentiates."""

    run: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    parameters: tuple[Tensor, ...] = ()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.layer", description=__doc__)
    parser.add_argument("--rows", type=int, help="B (32; with --cpu 8)")
    parser.add_argument("--longest", type=int, help="N: lengths are U[0, N] (2048; with --cpu 128)")
    parser.add_argument("--embedding", type=int, default=512, help="E")
    parser.add_argument("--heads", type=int, default=4, help="H")
    parser.add_argument("--features", type=int, default=128, help="D = V of a head")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bfloat16")
    parser.add_argument("--preset", choices=("production", "research"), default="production")
    parser.add_argument("--budget-ms", type=float, default=30.0, help="sampling time of a part")
    parser.add_argument(
        "--compile", action="store_true", help="at the end, the layer through torch.compile too"
    )
    parser.add_argument("--cpu", action="store_true", help="on the CPU, where only smoke is seen")
    options = parser.parse_args(arguments)
    if not options.cpu and not torch.cuda.is_available():
        parser.error("there is no CUDA device: give --cpu to run on the CPU")
    rows, longest = (8, 128) if options.cpu else (32, 2048)
    options.rows = rows if options.rows is None else options.rows
    options.longest = longest if options.longest is None else options.longest
    return options


def layer_of(options: argparse.Namespace, **changes: Any) -> HSTULayer:
    """The layer in training, with weights that leave no part at 0."""
    preset = HSTUConfig.production if options.preset == "production" else HSTUConfig.research
    config = preset(
        **{
            "embedding_dim": options.embedding,
            "num_heads": options.heads,
            "attention_dim": options.features,
            "hidden_dim": options.features,
            "max_length": options.longest,
            "dropout": options.dropout,
            **changes,
        }
    )
    torch.manual_seed(0)
    return HSTULayer(config)


def batch(
    lengths: Tensor, longest: int, width: int, device: torch.device, dtype: torch.dtype
) -> tuple[JaggedTensor, Tensor]:
    """Elements [T, width] in rows of these lengths, and their timestamps."""
    offsets = torch.zeros(lengths.shape[0] + 1, dtype=torch.int64)
    offsets[1:] = lengths.cumsum(0)
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(int(offsets[-1]), width, generator=generator)
    times = torch.randint(0, 100_000, (values.shape[0],), generator=generator).cumsum(0)
    x = JaggedTensor(values.to(device, dtype), offsets.to(device), longest)
    return x, times.to(device)


def check(options: argparse.Namespace, device: torch.device, dtype: torch.dtype) -> float:
    """The largest relative error of the layer against float64 on the CPU; raises `Wrong`.

    Result and all gradients, without dropout. The parameters are those of `dtype`, exactly. On two
    rows of about the mean length, so that the kernels are those that are timed.
    """
    layer = layer_of(options, dropout=0.0).to(dtype)
    exact = copy.deepcopy(layer).double()
    middle = options.longest // 2
    lengths = torch.tensor([middle + middle // 8, middle - middle // 8])
    x, times = batch(lengths, options.longest, options.embedding, torch.device("cpu"), dtype)
    # The gradient is that of the product with other numbers, so no sum cancels.
    factor = torch.randn(x.values.shape, generator=torch.Generator().manual_seed(2)).to(dtype)

    def results(layer: HSTULayer, device: torch.device | str, dtype: torch.dtype) -> list[Tensor]:
        values = x.values.to(device, dtype).requires_grad_()
        moved = JaggedTensor(values, x.offsets.to(device), x.max_length)
        out = layer(moved, timestamps=_times(layer, times.to(device))).values
        leaves = [values, *layer.parameters()]
        return [out, *torch.autograd.grad(out, leaves, factor.to(device, dtype))]

    wanted = results(exact, "cpu", torch.float64)
    found = results(layer.to(device), device, dtype)
    names = ["result", *("gradient of " + n for n in ("x", *dict(layer.named_parameters())))]
    return max(
        relative_error(name, got.detach().cpu(), want.detach(), dtype)
        for name, got, want in zip(names, found, wanted, strict=True)
    )


def _times(layer: HSTULayer, times: Tensor) -> Tensor | None:
    return times if layer.config.time_buckets else None


def parts(layer: HSTULayer, x: JaggedTensor, timestamps: Tensor | None) -> dict[str, Part]:
    """The pieces, each with the tensors that the one before it gives."""
    longest = x.max_length
    assert longest is not None

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return layer.attention.attend(
            q, k, v, x.offsets, max_length=longest, num_targets=None, timestamps=timestamps
        )

    def gate(attended: Tensor, u: Tensor) -> Tensor:
        return layer.gate(attended, u, x.offsets)

    with torch.no_grad():
        normed = layer.norm.normalise(x.values, x.offsets)
        u, q, k, v = layer.project(normed)
        attended = attend(q, k, v)
        gated = gate(attended, u)
        out = layer.output(gated)
    return {
        "norm": Part(
            lambda values: layer.norm.normalise(values, x.offsets),
            (x.values,),
            tuple(layer.norm.parameters()),
        ),
        "projection": Part(layer.project, (normed,), tuple(layer.projection.parameters())),
        "attention": Part(attend, (q, k, v), tuple(layer.attention.parameters())),
        "gate": Part(gate, (attended, u), tuple(layer.output_norm.parameters())),
        "output": Part(layer.output, (gated,), tuple(layer.output.parameters())),
        "residual": Part(
            lambda values, out: layer.residual(x.with_values(values), out).values, (x.values, out)
        ),
    }


def torch_parts(layer: HSTULayer, ours: dict[str, Part]) -> dict[str, Part]:
    """Norm and gate of plain torch functions on the same tensors, for batches without a tail."""
    config, norm = layer.config, layer.output_norm

    def first(values: Tensor) -> Tensor:
        size = [config.embedding_dim]
        return functional.layer_norm(values, size, layer.norm.weight, layer.norm.bias, config.eps)

    def gate(attended: Tensor, u: Tensor) -> Tensor:
        opened = functional.silu(u) if config.activation == "u" else u
        flat = attended.flatten(1)
        if config.group_norm:
            normed = functional.group_norm(flat, config.num_heads, None, None, config.eps)
            if norm.weight is not None and norm.bias is not None:
                by_head = normed.view_as(attended) * norm.weight[:, None] + norm.bias[:, None]
                normed = by_head.flatten(1)
        else:
            size = [flat.shape[1]]
            normed = functional.layer_norm(flat, size, norm.weight, norm.bias, config.eps)
        gated = opened * normed
        joined = torch.cat([opened, flat, gated], 1) if config.concat_u else gated
        return functional.dropout(joined, config.dropout, training=layer.training)

    return {
        name: Part(run, ours[name].inputs, ours[name].parameters)
        for name, run in (("norm", first), ("gate", gate))
    }


def calls(part: Part) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Forward, and backward of a graph that is kept."""
    leaves = tuple(x.detach().requires_grad_() for x in part.inputs)
    out = part.run(*leaves)
    outs = out if isinstance(out, tuple) else (out,)
    grads = [torch.randn_like(x) for x in outs]
    wanted = (*leaves, *part.parameters)
    return lambda: part.run(*leaves), lambda: torch.autograd.grad(
        outs, wanted, grads, retain_graph=True
    )


def measure(stopwatch: Stopwatch, pieces: dict[str, Part]) -> dict[str, tuple[float, float, float]]:
    """Milliseconds forward and backward of each, and microseconds of the host for both."""
    names = list(pieces)
    pairs = [calls(piece) for piece in pieces.values()]
    timings = stopwatch.compare([call for pair in pairs for call in pair])
    found = {}
    for name, forward, backward in zip(names, timings[::2], timings[1::2], strict=True):
        if isinstance(forward, Exception):
            raise forward
        if isinstance(backward, Exception):
            raise backward
        found[name] = (forward.p50, backward.p50, forward.host_us + backward.host_us)
    return found


def line(name: str, times: tuple[float, float, float], whole: tuple[float, float, float]) -> str:
    both = sum(times[:2])
    share = 100 * both / sum(whole[:2])
    return (
        f"{name:<22} {times[0]:>8.3f} {times[1]:>9.3f} {both:>8.3f} {share:>6.1f} %"
        f" {times[2]:>9.0f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    device = torch.device("cpu" if options.cpu else "cuda")
    dtype = DTYPES[options.dtype]
    lengths = uniform()(options.rows, options.longest, torch.Generator().manual_seed(0))
    x, times = batch(lengths, options.longest, options.embedding, device, dtype)
    _show(
        f"{options.preset}, B {options.rows}, rows U[0, {options.longest}] ({x.values.shape[0]} "
        f"elements), E {options.embedding}, H {options.heads}, D = V = {options.features}, "
        f"dropout {options.dropout}, {options.dtype}"
    )
    error = check(options, device, dtype)
    _show(f"largest relative error on two rows: {error:.1e}, allowed {TOLERANCE[dtype]:.0e}")
    layer = layer_of(options).to(device, dtype)
    stopwatch = Stopwatch(device, budget_ms=options.budget_ms)
    stopwatch.warm(0.05 if options.cpu else 0.3)
    timestamps = _times(layer, times)
    ours = parts(layer, x, timestamps)

    def whole(run: Callable[..., JaggedTensor]) -> Part:
        def values(values: Tensor) -> Tensor:
            return run(x.with_values(values), timestamps=timestamps).values

        return Part(values, (x.values,), tuple(layer.parameters()))

    with quiet():
        alone = measure(stopwatch, {"whole layer": whole(layer)})["whole layer"]
        _show(
            f"{'ms':<22} {'forward':>8} {'backward':>9} {'both':>8} {'of whole':>8} {'host us':>9}"
        )
        _show(line("whole layer", alone, alone))
        found = measure(stopwatch, ours)
        for group, names in GROUPS.items():
            forward, backward, host = (sum(found[name][i] for name in names) for i in range(3))
            _show(line(group, (forward, backward, host), alone))
            for name in names if len(names) > 1 else ():
                _show(line("  " + name, found[name], alone))
        plain = torch_parts(layer, ours)
        for name, timing in measure(stopwatch, plain).items():
            _show(line(f"{name}, torch", timing, alone))
        if options.compile:
            pieces = {"whole": whole(_compiled(layer))} | {
                name: Part(_compiled(part.run), part.inputs, part.parameters)
                for name, part in plain.items()
            }
            for name, part in pieces.items():
                label = "whole, compiled" if name == "whole" else f"{name}, torch compiled"
                _show(line(label, measure(stopwatch, {name: part})[name], alone))
    return 0


def _show(text: str) -> None:
    print(text, flush=True)


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False)
    return compiled


if __name__ == "__main__":
    sys.exit(main())
