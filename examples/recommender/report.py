"""What a run shows: a line an epoch, the table at the end, the curves, a file of results."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from examples.recommender import checkpoint
from examples.recommender.evaluate import TOP, Metrics

LABELS = {"hstu": "HSTU (jagged)", "sasrec": "SASRec (padded)", "popularity": "popularity"}


@dataclass(frozen=True)
class EpochRecord:
    """One epoch of one model; `hit_rate` and `ndcg` are of the validation part."""

    model: str
    epoch: int
    loss: float
    rows_per_second: float
    seconds: float
    hit_rate: float
    ndcg: float


@dataclass(frozen=True)
class TestRecord:
    """The test figures of one model, those of its best epoch by validation (0: not trained)."""

    model: str
    best_epoch: int
    seconds: float
    hit_rate: float
    ndcg: float


def epoch_line(history: Sequence[EpochRecord], epochs: int, seconds_left: float) -> str:
    """The line that ends an epoch; `seconds_left` is for the rest of this model's training."""
    record = history[-1]
    metrics = Metrics(record.hit_rate, record.ndcg)
    best = ", best so far" if all(record.ndcg > old.ndcg for old in history[:-1]) else ""
    return (
        f"{record.model:<8} epoch {record.epoch:>3}/{epochs}  loss {record.loss:.4f}  "
        f"{record.rows_per_second:>7,.0f} sequences/s  validation {metrics}  "
        f"{timedelta(seconds=round(seconds_left))} left{best}"
    )


def final_table(tests: Sequence[TestRecord]) -> str:
    """The test figures beside each other, and what they are times the popularity list's."""
    floor = next((t.ndcg for t in tests if t.model == "popularity"), 0.0)
    lines = [
        f"{'test, all items ranked':<24}{f'HR@{TOP}':>8}{f'NDCG@{TOP}':>9}"
        f"{'x popularity':>14}{'best epoch':>12}{'training':>10}"
    ]
    for test in tests:
        times = f"{test.ndcg / floor:.1f}" if floor > 0 else "-"
        trained = test.best_epoch > 0
        lines.append(
            f"{LABELS[test.model]:<24}{test.hit_rate:>8.4f}{test.ndcg:>9.4f}{times:>14}"
            f"{test.best_epoch if trained else '-':>12}"
            f"{f'{test.seconds:.0f} s' if trained else '-':>10}"
        )
    return "\n".join(lines)


def write_results(
    folder: Path,
    history: Sequence[EpochRecord],
    tests: Sequence[TestRecord],
    popularity: Metrics,
) -> None:
    """`results.json`, `epochs.jsonl` and `curves.png` in the run folder.

    Args:
        popularity: validation figures of the popularity list, to be seen beside the curves.
    """
    checkpoint.write_text(
        folder / "epochs.jsonl", "".join(json.dumps(asdict(r)) + "\n" for r in history)
    )
    checkpoint.write_text(
        folder / "results.json", json.dumps([asdict(t) for t in tests], indent=2) + "\n"
    )
    draw_curves(folder / "curves.png", history, popularity)


def draw_curves(path: Path, history: Sequence[EpochRecord], popularity: Metrics) -> None:
    """Loss and validation NDCG by epoch, one line a model, the popularity list's NDCG beside."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    losses, ndcgs = figure.subplots(1, 2)
    for name in dict.fromkeys(record.model for record in history):
        records = [record for record in history if record.model == name]
        epochs = [record.epoch for record in records]
        losses.plot(epochs, [r.loss for r in records], marker=".", label=LABELS[name])
        ndcgs.plot(epochs, [r.ndcg for r in records], marker=".", label=LABELS[name])
    ndcgs.axhline(popularity.ndcg, color="grey", linestyle="--", label=LABELS["popularity"])
    losses.set(xlabel="epoch", ylabel="training loss", title="Loss")
    ndcgs.set(xlabel="epoch", ylabel=f"validation NDCG@{TOP}", title="Quality", ylim=(0, None))
    for axes in (losses, ndcgs):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)
