"""Machine code for the H200 without one: `jagged.tuning.offline`, under the name that tests use."""

from jagged.tuning.offline import Cubin, compile_kernel

__all__ = ["Cubin", "compile_kernel"]
