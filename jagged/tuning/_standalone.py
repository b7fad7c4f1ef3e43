"""What an exported file has around its kernels: its source is part of the file.

It may use torch and Triton alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Config(NamedTuple):
    """The config of a table that was chosen for this file."""

    number: int
    form: str
    constants: Mapping[str, int]


class Table:
    """In place of a table of configs: the one that was chosen, by item size and width."""

    def __init__(self, configs: Mapping[tuple[int, int], Config]) -> None:
        self._configs = configs

    def pick(self, values: Tensor, width: int, rows: int) -> Config:
        key = values.element_size(), width
        if key not in self._configs:
            known = " or ".join(
                f"{width} features of {size} bytes" for size, width in self._configs
            )
            raise ValueError(
                f"this file was generated for {known or 'another case'}, "
                f"got {width} features of {key[0]} bytes: export one for them"
            )
        return self._configs[key]


class Kernel:
    """A kernel, and what it was generated for; refuses to run for anything else.

    Args:
        name: of the kernel.
        arguments: their names.
        dynamic: for each argument, the dimensions whose size does not matter; None for one that is
            compiled in.
        variants: the launchers by the number of the config and the facts of the arguments.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        dynamic: Sequence[tuple[int, ...] | None],
        variants: Mapping[tuple[Any, ...], Callable[..., None]],
    ) -> None:
        self._name = name
        self._arguments = arguments
        self._dynamic = dynamic
        self._variants = variants

    def __call__(self, config: Config, *args: Any) -> None:
        facts = tuple(map(_fact, args, self._dynamic))
        launcher = self._variants.get((config.number, *facts))
        if launcher is None:
            raise ValueError(self._refusal(config, facts))
        device = next(arg.device for arg in args if isinstance(arg, Tensor))
        with torch.cuda.device(device if device.type == "cuda" else -1):
            launcher(*args)

    def _refusal(self, config: Config, facts: tuple[object, ...]) -> str:
        known = [key[1:] for key in self._variants if key[0] == config.number]
        if not known:
            return f"this file has no kernel {self._name}: export one for such arguments"
        nearest = max(known, key=lambda other: sum(map(_equal, other, facts)))
        wrong = [
            f"{name} is {_text(fact)}, not {_text(expected)}"
            for name, fact, expected in zip(self._arguments, facts, nearest, strict=True)
            if not _equal(fact, expected)
        ]
        return f"{self._name} was not generated for this call: {'; '.join(wrong)}"


def _fact(arg: Any, dynamic: tuple[int, ...] | None) -> object:
    """What the generated code depends on."""
    if isinstance(arg, Tensor):
        dims = dynamic or ()
        sizes = tuple(-1 if dim in dims else size for dim, size in enumerate(arg.shape))
        return arg.dtype, sizes, is_wide(arg)
    return arg if arg is None or dynamic is None else type(arg).__name__


def is_wide(tensor: Tensor) -> bool:
    """Whether addresses need 64 bits, by the rule of `jagged.tuning.launch`."""
    reach = sum(size * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return reach >= 2**31 or tensor.numel() >= 2**31


def _equal(one: object, other: object) -> bool:
    return one == other and type(one) is type(other)


def _text(fact: object) -> str:
    if not isinstance(fact, tuple):
        return repr(fact) if fact is None or not isinstance(fact, str) else fact
    dtype, sizes, wide = fact
    shape = ", ".join("any" if size < 0 else str(size) for size in sizes)
    return f"{dtype} [{shape}]" + (" with 64-bit addresses" if wide else "")


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
    """Launch a Triton kernel on the current device and stream."""
    kernel[grid](*args, **options)
