"""The results as a table, as charts and as a comparison: `python -m bench.report`."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench import rows as results
from bench.rows import Row

OURS = "jagged"
SLOWER = 1.10


def latest(rows: Iterable[Row]) -> list[Row]:
    """The last row of each contender in each case and commit, in order of appearance."""
    found: dict[tuple[str, ...], Row] = {}
    for row in rows:
        key = (row.machine.commit, *row.case, row.provider)
        found[key] = row
    return list(found.values())


def of_commit(rows: Iterable[Row], commit: str | None) -> list[Row]:
    """The latest rows of one commit (a prefix will do); without one, of the last in the file."""
    rows = list(rows)
    if not rows:
        return []
    if commit is None:
        commit = rows[-1].machine.commit
    chosen = [row for row in rows if row.machine.commit.startswith(commit)]
    if not chosen:
        known = sorted({row.machine.commit for row in rows})
        raise ValueError(f"no rows of commit {commit!r}: the file has {known}")
    return latest(chosen)


def by_case(rows: Iterable[Row]) -> dict[tuple[str, str, str, str], list[Row]]:
    cases: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        cases.setdefault(row.case, []).append(row)
    return cases


def fastest(rows: Iterable[Row]) -> Row | None:
    """The fastest contender that is not ours, of those with a time."""
    timed = [(row.p50_ms, row) for row in rows if row.p50_ms is not None and not row.ours]
    return min(timed, key=lambda pair: pair[0])[1] if timed else None


def table(rows: Sequence[Row]) -> str:
    """Markdown: limits, times by case, costs of a call, and who failed."""
    rows = latest(rows)
    if not rows:
        return "no rows"
    sections = [
        _heading(rows),
        _times(rows),
        _costs(rows),
        _failures(rows),
    ]
    return "\n\n".join(section for section in sections if section)


def _heading(rows: Sequence[Row]) -> str:
    machine = rows[-1].machine
    facts = [machine.gpu, f"commit {machine.commit}", machine.date, f"torch {machine.torch}"]
    facts += [
        f"{name} {version}"
        for name, version in (
            ("triton", machine.triton),
            ("helion", machine.helion),
            ("fbgemm", machine.fbgemm),
        )
        if version
    ]
    limits = []
    for row in rows:
        if row.op == "limits" and row.gb_s is not None:
            limits.append(f"{row.mode} {row.gb_s:,.0f} GB/s")
        elif row.op == "limits" and row.tflop_s is not None:
            limits.append(f"{row.mode} ({row.dtype}) {row.tflop_s:,.3g} TFLOP/s")
    return ", ".join(facts) + (f"\n\nLimits: {', '.join(limits)}" if limits else "")


def both(rows: Sequence[Row]) -> Iterator[Row]:
    """A row of mode `both` for each contender that was timed forward and backward: their sum."""
    forward = {(*row.case[2:], row.op, row.provider): row for row in rows if row.mode == "forward"}
    for row in rows:
        first = forward.get((*row.case[2:], row.op, row.provider))
        if row.mode != "backward" or first is None or not first.p50_ms or not row.p50_ms:
            continue
        floor = first.p50_ms * (first.limit_share or 0) + row.p50_ms * (row.limit_share or 0)
        total = first.p50_ms + row.p50_ms
        yield Row(
            row.machine,
            row.op,
            "both",
            row.shape,
            row.dtype,
            row.provider,
            p50_ms=total,
            limit_share=floor / total,
        )


def _times(rows: Sequence[Row]) -> str:
    lines = []
    cases = by_case(row for row in [*rows, *both(rows)] if row.op != "limits")
    order = {op: place for place, op in enumerate(dict.fromkeys(row.op for row in rows))}
    for case, group in sorted(cases.items(), key=lambda item: order[item[0][0]]):
        if not any(row.p50_ms is not None for row in group):
            continue
        ours = next((row for row in group if row.provider == OURS), None)
        eager = next((row for row in group if row.provider == "jagged-eager"), None)
        fbgemm = next((row for row in group if row.provider == "fbgemm"), None)
        best = fastest(group)
        ratio = ""
        if ours and best and ours.p50_ms and best.p50_ms:
            ratio = f"{best.p50_ms / ours.p50_ms:.2f}x"
        lines.append(
            [
                *(case[i] for i in (0, 1, 2, 3)),
                _ms(ours),
                best.provider if best else "",
                _ms(best),
                ratio,
                _percent(ours),
                "" if not ours or not ours.tflop_s else f"{ours.tflop_s:.3g}",
                _ms(fbgemm),
                _ms(eager),
            ]
        )
    if not lines:
        return ""
    heading = (
        "op|mode|shape|dtype|ours ms|fastest baseline|its ms|speed-up|of the limit|TFLOP/s"
        "|fbgemm ms|our eager ms"
    )
    return markdown(heading.split("|"), lines, left=4)


def _costs(rows: Sequence[Row]) -> str:
    modes = ("call", "call-new", "call-grad", "call-grad-new")
    costs: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        if row.mode in modes and row.host_us is not None:
            costs.setdefault((row.op, row.provider), {})[row.mode] = f"{row.host_us:.1f}"
    if not costs:
        return ""
    lines = [
        [op, provider, *(cost.get(mode, "") for mode in modes)]
        for (op, provider), cost in costs.items()
    ]
    heading = ["op", "provider", "no grad", "new length", "grad", "grad, new length"]
    return "Cost of a forward call on the host, µs:\n\n" + markdown(heading, lines, left=2)


def _failures(rows: Sequence[Row]) -> str:
    lines = [
        f"- {' '.join(row.case)} **{row.provider}**: {row.error}"
        for row in rows
        if row.p50_ms is None and row.host_us is None and row.error
    ]
    return "No time, because:\n\n" + "\n".join(lines) if lines else ""


def markdown(heading: Sequence[str], lines: Sequence[Sequence[str]], left: int) -> str:
    """A table that also reads well as text: the first `left` columns flush left, the rest right."""
    widths = [max(map(len, column)) for column in zip(heading, *lines, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = [
        "-" * width if place < left else "-" * (width - 1) + ":"
        for place, width in enumerate(widths)
    ]
    return "\n".join([line(heading), f"| {' | '.join(rule)} |", *map(line, lines)])


def _ms(row: Row | None) -> str:
    if row is None:
        return ""
    return "failed" if row.p50_ms is None else f"{row.p50_ms:.4g}"


def _percent(row: Row | None) -> str:
    return "" if row is None or row.limit_share is None else f"{100 * row.limit_share:.0f} %"


def compare(rows: Sequence[Row], before: str, after: str) -> tuple[str, bool]:
    """Our times at two commits as a table; whether one got slower by more than 10 % or failed."""
    old = {row.case: row for row in of_commit(rows, before) if row.provider == OURS}
    new = {row.case: row for row in of_commit(rows, after) if row.provider == OURS}
    lines = list(_changes(old, new))
    heading = ["op", "mode", "shape", "dtype", f"{before} ms", f"{after} ms", "change", ""]
    slower = any(line[-1] for line in lines)
    if not lines:
        return "no case was measured at both commits", slower
    return markdown(heading, lines, left=4), slower


def _changes(
    old: dict[tuple[str, str, str, str], Row], new: dict[tuple[str, str, str, str], Row]
) -> Iterator[list[str]]:
    for case, was in old.items():
        now = new.get(case)
        if now is None or was.p50_ms is None:
            continue
        if now.p50_ms is None:
            yield [*case, _ms(was), _ms(now), "", "FAILED"]
            continue
        ratio = now.p50_ms / was.p50_ms
        verdict = "SLOWER" if ratio > SLOWER else ""
        yield [*case, _ms(was), _ms(now), f"{100 * (ratio - 1):+.1f} %", verdict]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument(
        "files", nargs="*", type=Path, help="CSV files (default: all of bench/results)"
    )
    parser.add_argument("--commit", help="of which commit (default: the last in the file)")
    parser.add_argument("--charts", type=Path, metavar="DIR", help="write PNG charts there")
    parser.add_argument(
        "--compare",
        nargs=2,
        metavar=("A", "B"),
        help="our times at two commits; exit 1 where one got slower by more than 10 %%",
    )
    options = parser.parse_args(arguments)
    files = options.files or sorted((Path(__file__).parent / "results").glob("*.csv"))
    if not files:
        parser.error("there are no results: run `python -m bench.run` first, or name a CSV file")
    try:
        return _print(files, options)
    except (OSError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


def _print(files: Sequence[Path], options: argparse.Namespace) -> int:
    """What the options ask for; 1 where a comparison found something slower."""
    code = 0
    for path in files:
        rows = results.read([path])
        if len(files) > 1:
            print(f"## {path.stem}\n")
        if options.compare:
            text, slower = compare(rows, *options.compare)
            code |= slower
            print(text)
            continue
        chosen = of_commit(rows, options.commit)
        print(table(chosen))
        if options.charts:
            from bench.charts import draw

            for chart in draw(chosen, options.charts, path.stem):
                print(f"\n{chart}")
    return code


if __name__ == "__main__":
    sys.exit(main())
