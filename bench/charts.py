"""PNG charts of the results, one per family of ops. Needs matplotlib."""

import fnmatch
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import by_case
from bench.rows import Row


@dataclass(frozen=True)
class Family:
    """What one chart shows: of each op the first shape measured that `shapes` (patterns) name.

    With `each`, every such shape is shown, labelled with TFLOP/s in place of milliseconds.
    """

    ops: tuple[str, ...]
    shapes: tuple[str, ...] = ("uniform", "small")
    each: bool = False


_ATTENTION = ("hstu_attention",)
FAMILIES = {
    "reductions": Family(("sum", "mean")),
    "softmax-and-norms": Family(("softmax", "layer_norm", "token_layer_norm", "norm_mul_dropout")),
    "additions-and-padding": Family(
        ("dense_add", "padded_add", "row_add", "to_padded", "from_padded")
    ),
    "products": Family(("dense_bmm", "jagged_bmm")),
    "hstu-attention": Family(_ATTENTION, ("uniform-*", "skew-*", "full-b*", "small"), each=True),
    "hstu-attention-lengths": Family(_ATTENTION, ("full-n*",), each=True),
    "hstu-attention-features": Family(_ATTENTION, ("feature-*", "gr-*"), each=True),
}
# One colour a provider in all charts; ours stands out.
_COLORS = {
    "jagged": "#d1495b",
    "jagged-eager": "#e8a5ad",
    "fbgemm": "#1f4e79",
    "fbgemm-csr": "#4f81b0",
    "torch-segment_reduce": "#2a9d8f",
    "torch-padded": "#8ab17d",
    "torch-njt": "#e9c46a",
    "torch-compile": "#7b6d8d",
    "torch-index": "#a3a380",
    "torch-layer_norm": "#2a9d8f",
    "torch-grouped_mm": "#5c677d",
    "torch-varlen (softmax)": "#5c677d",
}
_OTHER = "#999999"


def draw(rows: Sequence[Row], folder: Path, stem: str) -> Iterator[Path]:
    """Write a chart for each family that has times; yields the files."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    for name, family in FAMILIES.items():
        panels = [
            (mode, cases)
            for mode in ("forward", "backward")
            if (cases := _cases(rows, family, mode))
        ]
        if not panels:
            continue
        places = max(sum(len(group) + 1 for group in cases.values()) for _, cases in panels)
        figure, axes = pyplot.subplots(
            len(panels), 1, figsize=(max(8.0, 0.32 * places + 2), 3.6 * len(panels)), squeeze=False
        )
        for axis, (mode, cases) in zip(axes[:, 0], panels, strict=True):
            _panel(axis, mode, cases, family.each)
        handles, labels = _legend(axes[:, 0])
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        machine = rows[-1].machine
        figure.suptitle(f"{name}, {machine.gpu}, commit {machine.commit}")
        figure.set_layout_engine("constrained")
        path = folder / f"{stem}-{name}.png"
        figure.savefig(path, dpi=120)
        pyplot.close(figure)
        yield path


def _cases(rows: Sequence[Row], family: Family, mode: str) -> dict[str, list[Row]]:
    """Label to the timed rows of a case, in the first dtype that it was measured in."""
    chosen: dict[str, list[Row]] = {}
    seen = set()
    for case, group in by_case(rows).items():
        op, its_mode, shape, dtype = case
        timed = [row for row in group if row.p50_ms is not None]
        name = shape if family.each else op
        if op not in family.ops or its_mode != mode or not timed or name in seen:
            continue
        if any(fnmatch.fnmatch(shape, pattern) for pattern in family.shapes):
            seen.add(name)
            # Names of many parts, such as full-b32-n4096-h4-d128, take several lines.
            short = textwrap.fill(shape.replace("-", " "), 10)
            chosen[f"{short}\n{dtype}" if family.each else f"{op}\n{shape}, {dtype}"] = timed
    return chosen


def _place(provider: str) -> int:
    known = list(_COLORS)
    return known.index(provider) if provider in known else len(known)


def _panel(axis: Any, mode: str, cases: dict[str, list[Row]], rates: bool) -> None:
    """Share of the limit, grouped by case: 1 is as fast as the machine can."""
    place = 0.0
    ticks = []
    for group in cases.values():
        start = place
        for row in sorted(group, key=lambda row: _place(row.provider)):
            share = row.limit_share or 0.0
            axis.bar(
                place, 100 * share, 0.9, color=_COLORS.get(row.provider, _OTHER), label=row.provider
            )
            number = row.tflop_s if rates else row.p50_ms
            label = "" if number is None else f"{number:.3g}"
            axis.text(place, 100 * share, label, ha="center", va="bottom", size=6)
            place += 1
        ticks.append((start + place - 1) / 2)
        place += 1
    axis.set_xticks(ticks, list(cases), size=7)
    unit = "TFLOP/s" if rates else "ms"
    axis.set_ylabel(f"{mode}\n% of the limit (label: {unit})", size=8)
    axis.spines[["top", "right"]].set_visible(False)


def _legend(axes: Any) -> tuple[list[Any], list[str]]:
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)
