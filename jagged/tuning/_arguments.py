"""Arguments that several commands of `python -m jagged.tuning` take."""

from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path

from jagged.tuning import operands
from jagged.tuning.operands import Shape
from jagged.tuning.tables import Capability

# With blanks, where argparse may break the line.
SHAPE = "rows=B,length=MEAN and more with commas: width=D (128), columns=N, heads=H, longest=N"
DTYPES = ("bfloat16", "float16", "float32")


def add_call(parser: ArgumentParser) -> None:
    """A call of one op, and the GPU and tables whose configs it gets."""
    parser.add_argument("op", choices=operands.OPS)
    parser.add_argument("--shape", required=True, type=shape, help=SHAPE)
    add_kind(parser, "of the values")
    parser.add_argument("--capability", type=capability, help="such as 9.0; of this GPU if not")
    parser.add_argument("--tables", type=Path, help="a folder of tables that come first")


def add_kind(parser: ArgumentParser, whose: str) -> None:
    """The dtype and the options of calls."""
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16", help=f"{whose}: %(default)s")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=NUMBER", help=_options()
    )


def _options() -> str:
    """Those of each op."""
    known = (f"{op}: {' '.join(names)}" for op, names in operands.OPTIONS.items())
    return f"of the op ({'; '.join(known)})"


def shape(text: str) -> Shape:
    """As `operands.parse_shape`, with its message in argparse's."""
    try:
        return operands.parse_shape(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def capability(text: str) -> Capability:
    """A compute capability, such as 9.0."""
    major, _, minor = text.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        raise ArgumentTypeError(f"a compute capability is such as 9.0, got {text!r}")
    return int(major), int(minor)


def seconds(text: str) -> float:
    """A length of time above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise ArgumentTypeError(f"a budget is a number of seconds above 0, got {text!r}")
    return number
