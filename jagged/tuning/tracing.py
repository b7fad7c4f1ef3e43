"""Which calls a model makes, for the tuner to measure."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from jagged.ops import _library
from jagged.tuning import tables
from jagged.tuning.cases import Case, write_cases
from jagged.tuning.configs import length_bits
from jagged.tuning.operands import Shape


class Call(NamedTuple):
    """What of a call's arguments decides how fast it is; names as in `operands.Shape`."""

    dtype: torch.dtype
    rows: int
    total: int
    sizes: Mapping[str, int]
    options: Mapping[str, int]


@contextlib.contextmanager
def trace(path: str | Path) -> Iterator[None]:
    """Write to `path` which ops run inside, with which sizes: for `tune --from-trace`.

        with jagged.tuning.trace("calls.json"):
            for batch in batches:
                loss(model(batch)).backward()

    Calls whose number of rows, and whose mean length to a power of two, are the same count as
    one, as they get the same config. Sizes are read on the host: nothing waits for the device, and
    what CUDA graphs replay is not seen. Outside nothing is recorded and nothing costs. Under
    `torch.compile`, the compiled ops are seen as well, and so are those of other threads. The file
    is written at the end, in any case; of several processes, each needs a path of its own.

    Args:
        path: of the JSON file; an earlier one is replaced, and its folder made if there is none.

    Raises:
        OSError: no file can be written there, which is known before anything runs.
    """
    path = Path(path).resolve()
    tables.require_writable(path)
    seen = _Seen()
    _library.observers.append(seen.observe)
    try:
        yield
    finally:
        _library.observers.remove(seen.observe)
        seen.write(path)


@dataclass
class _Seen:
    """Distinct calls and how often each was made, and the ops that ran backward."""

    calls: dict[tuple[object, ...], tuple[str, Call, int]] = field(default_factory=dict)
    backward: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def observe(self, op: str, direction: str, args: tuple[Any, ...]) -> None:
        with self.lock:
            if direction == "backward":
                self.backward.add(op)
                return
            read = READERS.get(op)
            call = None if read is None else read(args)
            if call is None or call.rows == 0 or call.total == 0 or 0 in call.sizes.values():
                return
            key = (
                op,
                call.dtype,
                call.rows,
                length_bits(call.total, call.rows),
                *((name, _class(name, size)) for name, size in call.sizes.items()),
                *call.options.items(),
            )
            _, kept, count = self.calls.get(key, (op, call, 0))
            kept = max(kept, call, key=lambda one: one.total)
            self.calls[key] = op, kept, count + 1

    def write(self, path: Path) -> None:
        cases = [
            Case(
                op,
                Shape(call.rows, _length(call.total, call.rows), **call.sizes),
                call.dtype,
                call.options,
                count,
                op in self.backward,
            )
            for op, call, count in self.calls.values()
        ]
        write_cases(path, cases)


def _length(total: int, rows: int) -> int:
    """The mean length as a whole number that gets the config of the mean, at least 1."""
    length = total // rows
    same = length_bits(rows * length, rows) == length_bits(total, rows)
    return max(1, length if same else length + 1)


def _class(name: str, size: int) -> int:
    """Lengths count up to a power of two, widths exactly."""
    return size.bit_length() if name == "longest" else size


def _values(args: tuple[Any, ...], **options: int) -> Call:
    """Of an op whose first arguments are values [T, ...] and offsets."""
    values, offsets = args[:2]
    width = values.shape[1:].numel()
    return Call(values.dtype, offsets.shape[0] - 1, values.shape[0], {"width": width}, options)


def _limited(args: tuple[Any, ...], call: Call, place: int) -> Call:
    limit = args[place]
    return call if limit is None else call._replace(options={**call.options, "max_length": limit})


def _padded(args: tuple[Any, ...], longest: int) -> Call:
    call = _values(args)
    return call._replace(sizes={**call.sizes, "longest": longest})


def _token_layer_norm(args: tuple[Any, ...]) -> Call:
    values, weight, _, _, offsets = args
    rows = values.shape[0] if offsets is None else offsets.shape[0] - 1
    sizes, options = {"width": values.shape[1]}, {} if weight is not None else {"plain": 1}
    return Call(values.dtype, rows, values.shape[0], sizes, options)


def _norm_mul_dropout(args: tuple[Any, ...]) -> Call:
    values, _, weight, _, _, silu, concat, dropout, _, offsets = args
    rows = values.shape[0] if offsets is None else offsets.shape[0] - 1
    sizes = {"width": values.shape[-1]}
    if values.ndim == 3:
        sizes["heads"] = values.shape[1]
    chosen = {"plain": weight is None, "silu": silu, "concat": concat}
    options = {name: 1 for name, given in chosen.items() if given}
    if dropout > 0:
        options["dropout"] = min(max(round(100 * dropout), 1), 99)
    return Call(values.dtype, rows, values.shape[0], sizes, options)


def _dense_bmm(args: tuple[Any, ...]) -> Call:
    call = _values(args, **({} if args[3] is None else {"bias": 1}))
    call = call._replace(sizes={**call.sizes, "columns": args[2].shape[2]})
    return _limited(args, call, 4)


def _jagged_bmm(args: tuple[Any, ...]) -> Call:
    x, y, offsets = args[:3]
    sizes = {"width": x.shape[1], "columns": y.shape[1]}
    return _limited(args, Call(x.dtype, offsets.shape[0] - 1, x.shape[0], sizes, {}), 3)


def _from_padded(args: tuple[Any, ...]) -> Call:
    dense, offsets, total = args
    sizes = {"width": dense.shape[2:].numel(), "longest": dense.shape[1]}
    return Call(dense.dtype, offsets.shape[0] - 1, total, sizes, {})


def _hstu_attention(args: tuple[Any, ...]) -> Call:
    q, _, v, offsets, longest = args[:5]
    sizes = {"width": q.shape[2], "columns": v.shape[2], "heads": q.shape[1], "longest": longest}
    given = {"scales": args[6], "targets": args[11], "position": args[12], "time": args[13]}
    options = dict(zip(("window", "contextual", "min_full"), args[8:11], strict=True))
    options |= {name: 1 for name, tensor in given.items() if tensor is not None}
    options = {name: number for name, number in options.items() if number}
    return Call(q.dtype, offsets.shape[0] - 1, q.shape[0], sizes, options)


READERS: dict[str, Callable[[tuple[Any, ...]], Call]] = {
    "sum": lambda args: _values(args),
    "mean": lambda args: _values(args),
    "softmax": lambda args: _limited(args, _values(args), 2),
    "layer_norm": lambda args: _values(args, **({"plain": 1} if args[2] is None else {})),
    "token_layer_norm": _token_layer_norm,
    "norm_mul_dropout": _norm_mul_dropout,
    "dense_add": lambda args: _padded(args, args[2].shape[1]),
    "padded_add": lambda args: _padded(args, args[2].shape[1]),
    "row_add": lambda args: _values(args),
    "dense_bmm": _dense_bmm,
    "jagged_bmm": _jagged_bmm,
    "to_padded": lambda args: _padded(args, args[2]),
    "from_padded": _from_padded,
    "hstu_attention": _hstu_attention,
}
