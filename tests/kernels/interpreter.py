"""What Triton's interpreter lacks to run Helion's generated kernels on CPU (TRITON_INTERPRET=1).

`install()` once per process, before the first kernel runs.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import helion.runtime
import helion.runtime.triton.helpers
import numpy as np
import triton.language as tl
import triton.runtime.interpreter as interpreter
from torch._inductor.runtime import triton_compat

Builder = interpreter.InterpreterBuilder


def _read(addresses: np.ndarray) -> np.ndarray:
    """The float32 numbers at these addresses, which lie in one tensor."""
    first = int(addresses.min())
    size = int(addresses.max()) - first + 4
    memory = np.frombuffer((ctypes.c_char * size).from_address(first), dtype=np.float32)
    return memory[(addresses.astype(np.int64) - first) // 4]


# Instruction -> what it computes. An instruction that is not here is an error, not a guess.
INLINE_ASSEMBLY: dict[str, Callable[..., np.ndarray]] = {
    "tanh.approx.f32": np.tanh,
    "ex2.approx.ftz.f32": np.exp2,
    "ex2.approx.f32": np.exp2,
    "lg2.approx.ftz.f32": np.log2,
    "rcp.approx.ftz.f32": np.reciprocal,
    "ld.global.nc.f32": _read,
    # bfloat16 bits to float32
    "shl.b32": lambda x: (x.astype(np.uint32) << 16).view(np.float32),
    "fma.rn.f32": lambda x, y, z: (x.astype(np.float64) * y + z).astype(np.float32),
}
# What the interpreter's own NumPy code warns of: its scalars are arrays, and kernels work with NaN.
WARNINGS = (
    "Conversion of an array with ndim > 0 to a scalar:DeprecationWarning",
    "invalid value encountered:RuntimeWarning",
    "overflow encountered:RuntimeWarning",
    "divide by zero encountered:RuntimeWarning",
)
SM_COUNT = 4  # small, so that persistent kernels take several turns


def install() -> None:
    """Patch Triton's interpreter and Helion's helpers in this process."""
    _install_libdevice()
    _install_bf16_dot()
    # Helion's NaN-propagating maximum is a custom combine function, which the interpreter reduces
    # element by element in Python: seconds for a small tile.
    helion.runtime.triton.helpers.max_propagate_nan = _max_propagate_nan
    helion.runtime.triton.helpers.min_propagate_nan = _min_propagate_nan
    helion.runtime.get_num_sm = lambda device, *, reserved_sms=0: SM_COUNT
    Builder.create_inline_asm = _create_inline_asm


def reversed_set_grid_idx(original: Callable[..., None]) -> Callable[..., None]:
    """`InterpreterBuilder.set_grid_idx` that visits the programs from the last to the first.

    The interpreter runs programs one after another, so two that write the same place pass in one
    order and fail in the other.
    """

    def set_grid_idx(self: Any, x: int, y: int, z: int) -> None:
        size = self.grid_dim
        original(self, size[0] - 1 - x, size[1] - 1 - y, size[2] - 1 - z)

    return set_grid_idx


def _install_libdevice() -> None:
    """Externs of libdevice have no body here; plain functions of Triton's language have."""
    bodies: dict[str, Callable[[Any], Any]] = {
        "exp": lambda x: tl.exp(x),
        "exp2": lambda x: tl.exp2(x),
        "log": lambda x: tl.log(x),
        "rsqrt": lambda x: tl.rsqrt(x),
        "erf": lambda x: tl.erf(x),
        "tanh": lambda x: 2 * tl.sigmoid(2 * x) - 1,
    }
    for name, body in bodies.items():
        setattr(triton_compat.libdevice, name, body)


def _install_bf16_dot() -> None:
    """The interpreter stores bfloat16 as uint16 and would multiply those integers."""
    original = Builder.create_dot

    def widen(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        data = (handle.data.astype(np.uint32) << 16).view(np.float32)
        return interpreter.TensorHandle(data, tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return original(self, widen(a), widen(b), *rest)

    Builder.create_dot = create_dot


def _propagate_nan(reduced: Any, x: Any, dim: int) -> Any:
    has_nan = tl.max((x != x).to(tl.int32), dim)
    return tl.where(has_nan > 0, float("nan"), reduced)


def _max_propagate_nan(x: Any, dim: int) -> Any:
    reduced = tl.max(x, dim)
    return _propagate_nan(reduced, x, dim) if x.dtype.is_floating() else reduced


def _min_propagate_nan(x: Any, dim: int) -> Any:
    reduced = tl.min(x, dim)
    return _propagate_nan(reduced, x, dim) if x.dtype.is_floating() else reduced


class _AssemblyResult:
    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def get_result(self, index: int) -> Any:
        return self.handle


def _create_inline_asm(
    self: Any, assembly: str, constraints: str, values: list[Any], types: Any, pure: bool, pack: int
) -> _AssemblyResult:
    instruction = assembly.split()[0]
    if instruction not in INLINE_ASSEMBLY:
        raise NotImplementedError(f"tests/kernels/interpreter.py has no body for {instruction!r}")
    with np.errstate(all="ignore"):
        data = INLINE_ASSEMBLY[instruction](*(value.data for value in values))
    return _AssemblyResult(interpreter.TensorHandle(data, tl.float32))
