"""Train an HSTU next-item recommender, and show it beside two baselines.

    python -m examples.train_recommender                        # a synthetic stream, two minutes
    python -m examples.train_recommender --data sequences.txt   # your own
    python -m examples.train_recommender --resume runs/...      # continue, to the same numbers

A padded SASRec of the same width trains on the same batches with the same loss. Every epoch is
validated; the test part is read once, with the best epoch's weights. All of a run is in its folder:
settings.json, a checkpoint a model, epochs.jsonl, results.json, curves.png.
"""

import dataclasses
import signal
import sys
import time
from pathlib import Path

if __package__ in (None, ""):  # run as a file: make `examples` importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from examples.recommender import checkpoint
from examples.recommender.baselines import PaddedSASRec, Popularity
from examples.recommender.data import Sequences, Split, leave_one_out, read_sequences
from examples.recommender.evaluate import evaluate
from examples.recommender.model import NextItemModel, hstu_encoder
from examples.recommender.report import EpochRecord, TestRecord, final_table, write_results
from examples.recommender.settings import Settings, parse
from examples.recommender.synthetic import synthetic_sequences
from examples.recommender.train import Trainer

ENCODERS = {"hstu": hstu_encoder, "sasrec": PaddedSASRec}


def main(arguments: list[str] | None = None) -> list[TestRecord]:
    """Train, print, write the run folder; returns the test figures, popularity first."""
    settings, folder, resume = parse(arguments)
    started = time.perf_counter()
    device = choose_device(settings.device)
    torch.set_num_threads(settings.threads)
    try:
        sequences = load(settings)
        split = leave_one_out(sequences, settings.max_length)
    except (OSError, ValueError) as error:
        raise SystemExit(f"train_recommender: {error}") from error
    if folder is None:
        folder = Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{sequences.name}"
    if not resume:
        start_folder(folder, dataclasses.replace(settings, device=str(device)))
    print(describe(sequences, split, device, folder))
    try:
        tests = train_and_test(settings, split, folder, device, resume)
    except KeyboardInterrupt:
        print(f"\ninterrupted: continue with --resume {folder}", file=sys.stderr)
        raise SystemExit(128 + signal.SIGINT) from None
    print(f"\n{final_table(tests)}\n")
    print(f"{time.perf_counter() - started:.0f} s in all; curves and results in {folder}")
    return tests


def train_and_test(
    settings: Settings, split: Split, folder: Path, device: torch.device, resume: bool
) -> list[TestRecord]:
    """Train every model to its end, then read the test part, once."""
    history: list[EpochRecord] = []
    trainers = []
    for name in settings.models:
        # Each model starts from the seed, whatever was trained before it.
        checkpoint.seed_everything(settings.seed)
        model = NextItemModel(ENCODERS[name](settings), split.seen, settings)
        trainer = Trainer(name, model, split, settings, folder, device)
        if resume:
            trainer.resume()
        trainer.fit()
        history += trainer.history
        trainers.append(trainer)

    popular = Popularity(split.seen).scores
    found = evaluate(popular, split.test, split.num_items)
    tests = [TestRecord("popularity", 0, 0.0, found.hit_rate, found.ndcg)]
    for trainer in reversed(trainers):
        trainer.model.eval()
        found = evaluate(trainer.model.scores, split.test, split.num_items, device)
        spent = sum(record.seconds for record in trainer.history)
        tests.append(
            TestRecord(trainer.name, trainer.best_epoch, spent, found.hit_rate, found.ndcg)
        )
    write_results(folder, history, tests, evaluate(popular, split.validation, split.num_items))
    return tests


def start_folder(folder: Path, settings: Settings) -> None:
    """Make an empty run folder that knows its settings."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise SystemExit(
            f"train_recommender: {folder} is not empty: continue that run with --resume {folder}, "
            "or give another --out"
        )
    checkpoint.write_text(folder / "settings.json", settings.to_json())


def choose_device(wanted: str) -> torch.device:
    """`auto` is the GPU where there is one; anything else is taken at its word."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(wanted)


def load(settings: Settings) -> Sequences:
    """The file, or the synthetic stream where none is given."""
    if settings.data is not None:
        return read_sequences(Path(settings.data))
    return synthetic_sequences(
        settings.synthetic_users, settings.synthetic_items, seed=settings.seed
    )


def describe(sequences: Sequences, split: Split, device: torch.device, folder: Path) -> str:
    """The lines that a run starts with."""
    lengths = sequences.rows.lengths()
    skipped = f" ({split.skipped} with fewer than 3 items left out)" if split.skipped else ""
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return (
        f"{sequences.name}: {len(lengths):,} users{skipped}, {split.num_items:,} items, "
        f"{int(lengths.sum()):,} events, {int(lengths.min())} to {int(lengths.max())} a user "
        f"(mean {lengths.double().mean():.1f})\non {where}; run folder {folder}"
    )


if __name__ == "__main__":
    main()
