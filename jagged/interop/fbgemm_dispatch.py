"""Replacing the kernels of an installed fbgemm through the dispatcher.

    with install_fbgemm_kernels() as installed:
        print(installed.replaced)
        model(batch)          # torchrec and everybody else now runs on this library

fbgemm's own autograd stays in front: only what computes is replaced. Calls that this library has
no op for (several jagged dimensions, additions of integers) go on to fbgemm's kernel.
"""

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from jagged import ops
from jagged.ops._library import unit_last_stride

_LOCK = threading.Lock()
_ACTIVE: list["InstalledKernels"] = []

_ops = torch.ops.jagged


def _pad(
    values: Tensor, offsets: Sequence[Tensor], max_lengths: Sequence[int], fill: float = 0.0
) -> Tensor:
    out: Tensor = _ops.to_padded_forward(unit_last_stride(values), offsets[0], max_lengths[0], fill)
    return out


def _pad_backward(grad: Tensor, offsets: Sequence[Tensor], total: int) -> Tensor:
    out: Tensor = _ops.to_padded_backward(unit_last_stride(grad), offsets[0], total)
    return out


def _unpad(dense: Tensor, offsets: Sequence[Tensor], total: int | None = None) -> Tensor:
    count = int(offsets[0][-1]) if total is None else total
    out: Tensor = _ops.from_padded_forward(unit_last_stride(dense), offsets[0], count)
    return out


def _pad_2d(values: Tensor, offsets: Tensor, length: int) -> Tensor:
    return _pad(values, [offsets], [length])


def _pad_1d(values: Tensor, offsets: Tensor, length: int, fill: int) -> Tensor:
    return _pad(values, [offsets], [length], float(fill))


def _softmax(values: Tensor, offsets: Tensor, length: int) -> Tensor:
    out: Tensor = _ops.softmax_forward(unit_last_stride(values), offsets, length)
    return out


def _softmax_backward(grad: Tensor, out: Tensor, offsets: Tensor, length: int) -> Tensor:
    values: Tensor = _ops.softmax_backward(
        unit_last_stride(grad), unit_last_stride(out), offsets, length
    )
    return values


def _dense_bmm(values: Tensor, offsets: Tensor, y: Tensor, length: int) -> Tensor:
    out: Tensor = _ops.dense_bmm_forward(
        unit_last_stride(values), offsets, unit_last_stride(y), None, length
    )
    return out


def _jagged_bmm(x: Tensor, y: Tensor, offsets: Tensor, length: int) -> Tensor:
    out: Tensor = _ops.jagged_bmm_forward(unit_last_stride(x), unit_last_stride(y), offsets, length)
    return out


def _add_two(values: Tensor, offsets: Sequence[Tensor], y_0: Tensor, y_1: Tensor) -> Tensor:
    first = _ops.dense_add_forward(unit_last_stride(values), offsets[0], unit_last_stride(y_0))
    out: Tensor = _ops.dense_add_forward(first, offsets[0], unit_last_stride(y_1))
    return out


def _add_to_dense(values: Tensor, offsets: Sequence[Tensor], y: Tensor) -> Tensor:
    # This operator has no autograd of its own in fbgemm: gradients flow through what it calls.
    return ops.padded_add(unit_last_stride(values), offsets[0], unit_last_stride(y))


def _one_jagged_dimension(arguments: Sequence[Any]) -> bool:
    """Whether no list among the arguments names more than one jagged dimension."""
    return all(not isinstance(a, (list, tuple)) or len(a) == 1 for a in arguments)


def _floating(arguments: Sequence[Any]) -> bool:
    dtypes = {a.dtype for a in arguments if isinstance(a, Tensor) and a.is_floating_point()}
    return len(dtypes) == 1 and arguments[0].is_floating_point()


# fbgemm's operator, what replaces it, and whether its values must be floating point.
_KERNELS: dict[str, tuple[Callable[..., Tensor], bool]] = {
    "jagged_to_padded_dense_forward": (_pad, False),
    "jagged_to_padded_dense_backward": (_pad_backward, False),
    "jagged_2d_to_dense": (_pad_2d, False),
    "jagged_1d_to_dense": (_pad_1d, False),
    "dense_to_jagged_forward": (_unpad, False),
    "jagged_dense_elementwise_add": (_add_to_dense, True),
    "jagged_dense_dense_elementwise_add_jagged_output_forward": (_add_two, True),
    "jagged_softmax_forward": (_softmax, True),
    "jagged_softmax_backward": (_softmax_backward, True),
    "jagged_dense_bmm_forward": (_dense_bmm, True),
    "jagged_jagged_bmm_forward": (_jagged_bmm, True),
}


class InstalledKernels:
    """The kernels in force; `uninstall()` or the end of a `with` block gives fbgemm's back."""

    def __init__(self, library: torch.library.Library, replaced: tuple[str, ...]) -> None:
        self._library: torch.library.Library | None = library
        self.replaced = replaced

    def uninstall(self) -> None:
        """Put fbgemm's own kernels back; a second call does nothing."""
        with _LOCK:
            if self._library is not None:
                self._library._destroy()  # type: ignore[no-untyped-call]
                self._library = None
                _ACTIVE.remove(self)

    def __enter__(self) -> "InstalledKernels":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.uninstall()

    def __repr__(self) -> str:
        state = "installed" if self._library is not None else "uninstalled"
        return f"InstalledKernels({state}; replaced: {', '.join(self.replaced)})"


def install_fbgemm_kernels(*, cuda: bool = True, cpu: bool = False) -> InstalledKernels:
    """Replace fbgemm's kernels by this library's, for every caller in the process.

    Args:
        cuda: replace the CUDA kernels.
        cpu: replace the CPU kernels too.

    Returns:
        The handle: `replaced` lists the kernels ("jagged_softmax_forward on CUDA", ...),
        `uninstall()` takes them back; it is a context manager as well.

    Raises:
        ModuleNotFoundError: fbgemm_gpu is not installed.
        RuntimeError: they are installed already, or there is nothing to replace.
    """
    import fbgemm_gpu  # noqa: F401  (loads the operators)

    keys = [key for key, wanted in (("CUDA", cuda), ("CPU", cpu)) if wanted]
    with _LOCK:
        if _ACTIVE:
            raise RuntimeError(f"fbgemm's kernels are replaced already: {_ACTIVE[0]!r}")
        library = torch.library.Library("fbgemm", "IMPL")  # type: ignore[no-untyped-call]
        replaced = []
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message=r"(?s).*[Oo]verriding a previously registered"
            )
            for name, (kernel, floating) in _KERNELS.items():
                for key in keys:
                    if torch._C._dispatch_has_kernel_for_dispatch_key(f"fbgemm::{name}", key):
                        replacement = _replacement(name, kernel, floating, key)
                        library.impl(name, replacement, key, with_keyset=True)  # type: ignore[no-untyped-call]
                        replaced.append(f"{name} on {key}")
        if not replaced:
            library._destroy()  # type: ignore[no-untyped-call]
            raise RuntimeError(
                f"this fbgemm has no kernel for {' or '.join(keys) or 'no device'} to replace"
            )
        handle = InstalledKernels(library, tuple(replaced))
        _ACTIVE.append(handle)
    return handle


def _replacement(
    name: str, kernel: Callable[..., Tensor], floating: bool, key: str
) -> Callable[..., Tensor]:
    original = torch.library.get_kernel(f"fbgemm::{name}", key)

    def run(keyset: torch.DispatchKeySet, *args: Any) -> Tensor:
        if _one_jagged_dimension(args) and (not floating or _floating(args)):
            return kernel(*args)
        out: Tensor = original.call_boxed(keyset, *args)
        return out

    return run
