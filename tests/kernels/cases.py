"""What the kernel tests run, once for Triton's interpreter and once for the offline compiler.

To add an op: write `tests/kernels/cases_NAME.py` with a list `CASES` of `Case`, nothing else.
`interpreted/test_cases.py`, `compiled/test_cubins.py` and `memcheck.py` find the file by its name.

A case calls `jagged.kernels.OP.DIRECTION(*arguments(make))`. `make` gives the tensors, so that one
builder serves real guarded buffers (interpreter) and meta tensors (compiler). The answer is
`jagged.eager.OP.DIRECTION` of the same arguments in float64, unless the case has an oracle.

`forms` names what the interpreter runs: for each label, the `ConfigTable` attributes of the kernel
module and the `Config` that each of them gives. Use large blocks there: the interpreter's cost is
the number of programs and trips. Have one label for each form of a kernel, and one whose blocks are
smaller than the rows, so that loops take several trips.

The offline compiler takes every entry of the tables named in `forms` and checks what ptxas says.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from jagged.tuning.configs import Config


class Make(Protocol):
    """Tensors of one jagged batch, as a case's `arguments` asks for them."""

    dtype: torch.dtype
    rows: int  # B
    total: int  # T, capacity included
    width: int  # features
    longest: int  # longest row

    def offsets(self) -> Tensor:
        """[B+1]; the same tensor at every call."""

    def values(self, *trailing: int, dtype: torch.dtype | None = None) -> Tensor:
        """[T, *trailing], NaN in the capacity tail."""

    def per_row(self, *trailing: int, dtype: torch.dtype | None = None) -> Tensor:
        """[B, *trailing], for dense operands of any rank."""

    def dense(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor of any other shape."""


@dataclass(frozen=True)
class Case:
    """One kernel file's forward or backward."""

    op: str
    direction: str
    arguments: Callable[[Make], tuple[Any, ...]]
    forms: Mapping[str, Mapping[str, Config]]
    widths: tuple[int, ...] = (25, 32, 25, 1)  # in turn, one a setting of the interpreter
    label: str = ""  # tells two cases of one op and direction apart
    tolerance: float = 8.0  # allowed error, in eps of the dtype times the largest number expected
    oracle: Callable[..., Any] | None = None
    product: bool = False  # multiplies matrices: wgmma must be in every bfloat16 cubin
    spills: frozenset[str] = field(default_factory=frozenset)  # entries that may spill, as repr

    def __str__(self) -> str:
        return "-".join(filter(None, (self.op, self.direction, self.label)))

    def module(self) -> Any:
        """The kernel file."""
        return importlib.import_module(f"jagged.kernels.{self.op}")

    def answer(self, *args: Any) -> Any:
        """What the oracle gives for these arguments."""
        if self.oracle is not None:
            return self.oracle(*args)
        eager = importlib.import_module(f"jagged.eager.{self.op}")
        return getattr(eager, self.direction)(*args)


def all_cases() -> list[Case]:
    """The cases of every `cases_NAME.py` beside this file."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("cases_*.py"))
    return [
        case for name in names for case in importlib.import_module(f"tests.kernels.{name}").CASES
    ]
