"""What the tuner may try for a kernel: a `Space` beside each table in the kernel files.

    FORWARD = ConfigTable(
        __file__,
        "forward",
        space=(
            Space("row", [up_to_width(32, 128)], warps=(1, 2, 4), DEEP=(1, 2), BLOCK=powers(2, 64)),
            Space("rows", [powers(1, 32), up_to_width(32, 128)], warps=(1, 2), BLOCK=(4, 8)),
        ),
    )

is every combination of these block sizes, numbers of warps and constants, for two forms.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jagged.tuning.decision import Point

Choices = Sequence[int] | Callable[[Point], Sequence[int]]


def powers(low: int, high: int) -> tuple[int, ...]:
    """The powers of two from `low` to `high`."""
    return tuple(1 << n for n in range(low.bit_length() - 1, high.bit_length()))


def up_to_width(low: int, high: int) -> Callable[[Point], Sequence[int]]:
    """The powers of two from `low` to `high` that the width fills, at least one of them."""

    def choices(point: Point) -> Sequence[int]:
        full = 1 << (max(point[1], 1) - 1).bit_length()
        return [n for n in powers(low, high) if n <= full] or [min(low, full)]

    return choices


class Space:
    """Configs of one form.

    Args:
        form: of these configs, "" where a table has no forms.
        blocks: choices for each of Helion's block sizes; none for a kernel without them.
        warps, stages: of the program.
        loops: choices of the stages of each loop (Helion's `range_num_stages`, in the order of its
            loops), () for loops that are not pipelined.
        constants: choices for the compile-time arguments that the tuner may change, by name, in the
            order in which the kernel takes them. Others keep their value in the table.
    """

    def __init__(
        self,
        form: str = "",
        blocks: Sequence[Choices] = (),
        *,
        warps: Sequence[int],
        stages: Sequence[int] = (),
        loops: Sequence[Sequence[int]] = (),
        **constants: Sequence[int],
    ) -> None:
        self.form = form
        self.blocks = tuple(blocks)
        self.warps = tuple(warps)
        self.stages = tuple(stages)
        self.loops = [list(choice) for choice in loops]
        self.constants = constants

    def axes(self, point: Point) -> dict[str, Sequence[int]]:
        """The choices at a point, by what they are for."""
        axes = {
            f"block_sizes {i}": choices(point) if callable(choices) else choices
            for i, choices in enumerate(self.blocks)
        }
        axes["num_warps"] = self.warps
        if self.stages:
            axes["num_stages"] = self.stages
        if self.loops:
            axes["loops"] = range(len(self.loops))
        return axes | {f"constant {name}": values for name, values in self.constants.items()}

    def config(self, choice: Mapping[str, int], base: Mapping[str, Any]) -> dict[str, Any]:
        """A choice of each axis as a config; what the space leaves alone is as in `base`."""
        same = base.get("form", "") == self.form
        kept = base if same else {}
        config = {k: v for k, v in kept.items() if k not in ("form", "constants")}
        blocks = [value for name, value in choice.items() if name.startswith("block_sizes")]
        if blocks:
            config["block_sizes"] = blocks
        config |= {k: v for k, v in choice.items() if k in ("num_warps", "num_stages")}
        if self.loops:
            config.pop("range_num_stages", None)
            if loops := self.loops[choice["loops"]]:
                config["range_num_stages"] = list(loops)
        if self.form:
            config["form"] = self.form
        constants = dict(kept.get("constants", {}))
        constants |= {
            name.removeprefix("constant "): value
            for name, value in choice.items()
            if name.startswith("constant ")
        }
        return config | ({"constants": constants} if constants else {})

    def choice(self, config: Mapping[str, Any]) -> dict[str, int] | None:
        """The inverse of `config`; None for one that this space has no place for."""
        if config.get("form", "") != self.form:
            return None
        blocks = config.get("block_sizes", [])
        constants = config.get("constants", {})
        if len(blocks) != len(self.blocks) or not set(self.constants) <= set(constants):
            return None
        choice = {f"block_sizes {i}": size for i, size in enumerate(blocks)}
        choice["num_warps"] = config.get("num_warps", 4)
        if self.stages:
            choice["num_stages"] = config.get("num_stages", 1)
        if self.loops:
            loops = config.get("range_num_stages", [])
            if loops not in self.loops:
                return None
            choice["loops"] = self.loops.index(loops)
        return choice | {f"constant {name}": constants[name] for name in self.constants}


def everything(
    spaces: Sequence[Space], point: Point, base: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Every config of the spaces at a point."""
    for space in spaces:
        axes = space.axes(point)
        for values in itertools.product(*axes.values()):
            yield space.config(dict(zip(axes, values, strict=True)), base)


def neighbours(
    spaces: Sequence[Space], point: Point, config: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The configs one step away from `config`: each axis to its next smaller and larger choice."""
    for space in spaces:
        choice = space.choice(config)
        if choice is None:
            continue
        for axis, values in space.axes(point).items():
            here = choice[axis]
            below = [value for value in sorted(values) if value < here]
            above = [value for value in sorted(values) if value > here]
            for value in below[-1:] + above[:1]:
                yield space.config(choice | {axis: value}, config)
