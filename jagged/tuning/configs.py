"""Which config a kernel runs with: a lookup in tables, in this order.

1. The user's: a folder given to `use_tables`, else the one in Helion's HELION_HEURISTIC_DIR.
2. Those shipped beside the kernels for the GPU's compute capability,
3. or for the nearest older one.
4. Else, on a GPU older than every table, the oldest there is, with one warning.

In the user's folder, too, the capability's own file comes before older ones, then Helion's
`heuristic_<kernel>.py`. `jagged.tuning.tables` describes the files; what a lookup depends on is
known on the host, so it never waits for the device.
"""

import json
import os
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from jagged.tuning import tables
from jagged.tuning.decision import Point
from jagged.tuning.space import Space
from jagged.tuning.tables import Capability

CPU: Capability = (0, 0)  # of Triton's interpreter, which runs any config


class Config:
    """One way to run a kernel. Compared by identity: it is part of a launcher's key.

    Args:
        settings: of Helion.
        form: which of several kernels.
        constants: compile-time arguments of the kernel, by name.
        maxnreg: the most registers a thread, 0 for as many as it takes. A setting of Helion for
            persistent grids alone; the launcher hands it to Triton for any.
    """

    __slots__ = ("constants", "form", "maxnreg", "settings")

    def __init__(
        self,
        settings: Mapping[str, Any],
        form: str = "",
        constants: Mapping[str, int] | None = None,
        maxnreg: int = 0,
    ) -> None:
        self.settings = dict(settings)
        self.form = form
        self.constants = dict(constants or {})
        self.maxnreg = maxnreg

    def __repr__(self) -> str:
        return f"Config({self.as_dict()})"

    @property
    def launch_options(self) -> dict[str, int]:
        """What Triton takes at a launch and Helion does not pass on."""
        return {"maxnreg": self.maxnreg} if self.maxnreg else {}

    def as_dict(self) -> dict[str, Any]:
        """As tables have it: the settings, and the rest where there is any."""
        extra = {"form": self.form, "constants": self.constants, "maxnreg": self.maxnreg}
        return self.settings | {name: value for name, value in extra.items() if value}

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> "Config":
        """The inverse of `as_dict`."""
        settings = {k: v for k, v in config.items() if k not in ("form", "constants", "maxnreg")}
        form, constants = config.get("form", ""), config.get("constants")
        return cls(settings, form, constants, config.get("maxnreg", 0))


class Found(NamedTuple):
    """A config and where it comes from."""

    config: Config
    source: str  # "user", "shipped", "older" or "default"
    path: Path


class ConfigTable:
    """The configs of one kernel and direction; `pick` costs about half a microsecond.

    Args:
        source_file: the kernel file (`__file__`), beside which the shipped tables are.
        name: of the table in these files: the kernel's, or of the function that chooses among
            several kernels.
        space: what the tuner tries.
    """

    _all: ClassVar["weakref.WeakSet[ConfigTable]"] = weakref.WeakSet()

    def __init__(self, source_file: str, name: str, space: Sequence[Space] = ()) -> None:
        self.folder = Path(source_file).parent
        self.stem = tables.stem_of(source_file)
        self.name = name
        self.space = tuple(space)
        # One object for equal configs, so that what was compiled for one serves them all.
        self._configs: dict[str, Config] = {}
        # Grows with the widths, for each of which a kernel is compiled, and with the powers of two
        # of the length, so by a few hundred at most.
        self._picked: dict[tuple[torch.device, int, int, int], Config] = {}
        self._all.add(self)

    def __repr__(self) -> str:
        return f"{self.stem}.{self.name}"

    def pick(self, values: Tensor, width: int, rows: int) -> Config:
        """The configuration for `values` [T, ...] of `width` features in `rows` rows."""
        bits = length_bits(values.shape[0], rows)
        key = (values.device, values.element_size(), width, bits)
        config = self._picked.get(key)
        if config is None:
            found = self.find(capability_of(values.device), point_of(values, width, rows))
            if found.source == "default":
                _warn_once(
                    "default",
                    "no configs for this GPU or an older one: kernels run with those of "
                    f"{found.path.name} and the like, which may be slow or not fit; find some with "
                    "python -m jagged.tuning tune",
                )
            config = self._picked[key] = found.config
        return config

    def find(self, capability: Capability, point: Point) -> Found:
        """The config for a point (itemsize, width, length), and where it comes from.

        Raises:
            FileNotFoundError: there is no table at all.
            ValueError: the user's file is damaged, or its config is for other kernels.
        """
        for source, path in self._candidates(capability):
            config = tables.choice(path, self.name, point)
            if config is not None:
                wrong = self.misfit(config) if source == "user" else ""
                if wrong:
                    raise ValueError(
                        f"{path}, {self} at {point}: {wrong}; it was tuned for other kernels: tune "
                        "it again, or do without the folder"
                    )
                return Found(self.config(config), source, path)
        raise FileNotFoundError(
            f"no table {self.name} in {self.folder / tables.file_name(self.stem, capability)} "
            "or beside it: write one with python -m jagged.tuning tune"
        )

    def misfit(self, config: Mapping[str, Any]) -> str:
        """Why this table's kernels cannot take a config, by its form and constants, or "".

        Constants are handed on in their order, so other names mean other numbers.
        """
        known = self._forms
        form, constants = config.get("form", ""), config.get("constants", {})
        if known and str(form) not in known:
            return f"it has the form {form!r}, which must be one of {', '.join(map(repr, known))}"
        names = tuple(constants) if isinstance(constants, Mapping) else (repr(constants),)
        if known and names not in known[form]:
            wanted = " or ".join(", ".join(one) or "none" for one in known[form])
            return f"it has the constants {', '.join(names) or 'none'}, which must be {wanted}"
        return ""

    @cached_property
    def _forms(self) -> dict[str, list[tuple[str, ...]]]:
        """The names of the constants of each form: as shipped, else what the tuner tries."""
        known: dict[str, list[tuple[str, ...]]] = {space.form: [] for space in self.space}
        for config in self.all().values() if self.space else ():
            names = tuple(config.constants)
            if names not in known.setdefault(config.form, []):
                known[config.form].append(names)
        for space in self.space:
            known[space.form] = known[space.form] or [tuple(space.constants)]
        return known

    def config(self, config: Mapping[str, Any]) -> Config:
        """The `Config` of a dictionary, always the same object for equal ones."""
        made = Config.from_dict(config)
        # The order of the constants counts, that of the settings does not.
        key = json.dumps([made.form, made.constants, made.maxnreg, sorted(made.settings.items())])
        with _lock:
            return self._configs.setdefault(key, made)

    def all(self) -> dict[tuple[Capability, Point], Config]:
        """Every shipped config at each of its points, for the tests that compile them all."""
        return {
            (capability, point): self.config(config)
            for capability, path in tables.files(self.folder, self.stem).items()
            for point, config in tables.entries(path, self.name).items()
        }

    @classmethod
    def known(cls) -> list["ConfigTable"]:
        """The tables of all kernel files that are imported."""
        return list(cls._all)

    def _candidates(self, capability: Capability) -> Iterator[tuple[str, Path]]:
        user = user_folder()
        if user is not None:
            known = tables.files(user, self.stem)
            yield from (("user", path) for _, path in _not_newer(known, capability))
            single = user / f"heuristic_{self.name}.py"
            if single.exists():
                yield "user", single
        known = tables.files(self.folder, self.stem)
        for tuned, path in _not_newer(known, capability):
            yield ("shipped" if tuned == capability else "older"), path
        for tuned in sorted(known):
            if tuned > capability:
                yield ("shipped" if capability == CPU else "default"), known[tuned]


def use_tables(folder: str | Path | None) -> None:
    """Look for configs in `folder` first, in this process, before HELION_HEURISTIC_DIR.

    Args:
        folder: what `python -m jagged.tuning tune --out` wrote to; None for no folder of one's own.

    Raises:
        NotADirectoryError: there is no such folder.
        ValueError: there are no tables in it.
    """
    global _chosen
    if folder is not None and not Path(folder).is_dir():
        raise NotADirectoryError(f"folder must be a folder with tables, got {folder}")
    if folder is not None and not tables.any_in(Path(folder)):
        raise ValueError(f"there are no tables in {folder}: write some with jagged.tuning tune")
    _chosen = None if folder is None else Path(folder).resolve()
    for table in ConfigTable.known():
        table._picked = {}


def user_folder() -> Path | None:
    """The folder whose tables come first, if there is one.

    Where HELION_HEURISTIC_DIR names none, or one without tables, one warning says so and the
    shipped tables serve: they decide how fast a kernel is, never what it gives.
    """
    if _chosen is not None:
        return _chosen
    named = os.environ.get("HELION_HEURISTIC_DIR")
    if not named:
        return None
    if Path(named).is_dir() and tables.any_in(Path(named)):
        return Path(named)
    _warn_once(
        f"HELION_HEURISTIC_DIR {named}",
        f"HELION_HEURISTIC_DIR must name a folder with tables, got {named}, which has none: "
        "kernels run with the shipped configs; write some with python -m jagged.tuning tune, or "
        "unset it",
    )
    return None


def point_of(values: Tensor, width: int, rows: int) -> Point:
    """Where `ConfigTable.pick` looks: item size, width, mean length to a power of two."""
    return values.element_size(), width, 1 << length_bits(values.shape[0], rows) >> 1


def length_bits(total: int, rows: int) -> int:
    """Number of bits of the power of two that is nearest, on a log scale, to the mean length.

    Down to one, a mean of 254 would be where one of 130 is, and one of 259 somewhere else.
    """
    return (total * 181 // (rows * 128)).bit_length() if rows else 0  # 181 / 128 is the root of 2


def capability_of(device: torch.device) -> Capability:
    """Compute capability of a CUDA device; (0, 0) for Triton's interpreter on the CPU."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else CPU


def _not_newer(
    known: Mapping[Capability, Path], capability: Capability
) -> list[tuple[Capability, Path]]:
    """The files that serve a GPU, the best first."""
    return sorted((item for item in known.items() if item[0] <= capability), reverse=True)


def _warn_once(about: str, message: str) -> None:
    if about not in _warned:
        _warned.add(about)
        warnings.warn(message, UserWarning, stacklevel=3)


_lock = threading.Lock()
_chosen: Path | None = None
_warned: set[str] = set()
