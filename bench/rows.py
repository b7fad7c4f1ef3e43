"""One line of the results: what was measured where, as CSV."""

import csv
import dataclasses
import importlib.metadata
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Machine:
    """Where and with what a run was made."""

    commit: str
    date: str
    gpu: str
    torch: str
    triton: str
    helion: str
    fbgemm: str


@dataclass(frozen=True)
class Row:
    """A contender in one mode of one case.

    Modes: `forward`, `backward`; `call`, `call-new`, `call-grad` and `call-grad-new` have
    `host_us` alone, what a forward call costs the host (new: with a total length never seen
    before, grad: with inputs that require gradients). The op `limits` holds what the machine can
    do, measured in the same run. `error` is the relative error against float64 where a time is
    given, else the reason why none is.
    """

    machine: Machine
    op: str
    mode: str
    shape: str
    dtype: str
    provider: str
    p50_ms: float | None = None
    p20_ms: float | None = None
    p80_ms: float | None = None
    gb_s: float | None = None
    tflop_s: float | None = None
    limit_share: float | None = None
    peak_mib: float | None = None
    host_us: float | None = None
    error: str = ""

    @property
    def case(self) -> tuple[str, str, str, str]:
        """What contenders are compared in."""
        return self.op, self.mode, self.shape, self.dtype

    @property
    def ours(self) -> bool:
        return self.provider == "jagged" or self.provider.startswith("jagged-")


_MACHINE = [f.name for f in dataclasses.fields(Machine)]
_TEXT = ("op", "mode", "shape", "dtype", "provider")
_NUMBERS = (
    "p50_ms",
    "p20_ms",
    "p80_ms",
    "gb_s",
    "tflop_s",
    "limit_share",
    "peak_mib",
    "host_us",
)
COLUMNS = (*_MACHINE, *_TEXT, *_NUMBERS, "error")


def write(path: Path, rows: Iterable[Row]) -> None:
    """Append to a CSV file, which gets its header where it is new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists() or path.stat().st_size == 0
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow(
                [getattr(row.machine, name) for name in _MACHINE]
                + [getattr(row, name) for name in _TEXT]
                + [_number(getattr(row, name)) for name in _NUMBERS]
                + [row.error]
            )


def read(paths: Sequence[Path]) -> list[Row]:
    """All rows of the files, in order."""
    rows = []
    for path in paths:
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            missing = set(COLUMNS) - set(reader.fieldnames or ())
            if missing:
                raise ValueError(
                    f"{path} must have the columns {sorted(missing)}, they are missing"
                )
            for line in reader:
                numbers = (float(line[name]) if line[name] else None for name in _NUMBERS)
                fields: list[Any] = [*(line[name] for name in _TEXT), *numbers, line["error"]]
                rows.append(Row(Machine(*(line[name] for name in _MACHINE)), *fields))
    return rows


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"


def version(*names: str) -> str:
    """The version of the first of these distributions that is installed, else empty."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def machine(device: torch.device, commit: str | None, date: str) -> Machine:
    """This machine; `commit` is asked of git where it is not given."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return Machine(
        commit=commit or git_commit(),
        date=date,
        gpu=name,
        torch=torch.__version__,
        triton=version("triton", "pytorch-triton"),
        helion=version("helion"),
        fbgemm=version("fbgemm-gpu", "fbgemm-gpu-cpu"),
    )


def git_commit() -> str:
    """The commit of the tree, `-dirty` where its sources differ from it; `unknown` outside git."""
    root = Path(__file__).parent.parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "--short=12", "HEAD")
    if not commit:
        return "unknown"
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "jagged", "bench")
    return f"{commit}-dirty" if changed else commit


def file_name(machine: Machine) -> str:
    """`nvidia-h200.csv` for an NVIDIA H200."""
    return machine.gpu.lower().replace(" ", "-") + ".csv"
