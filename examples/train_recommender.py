"""Train an HSTU next-item recommender, and show it beside two baselines.

    python -m examples.train_recommender                        # a synthetic stream, two minutes
    python -m examples.train_recommender --data sequences.txt   # your own
    python -m examples.train_recommender --resume runs/...      # continue, to the same numbers
    torchrun --nproc-per-node 8 -m examples.train_recommender --tables sharded

A padded SASRec of the same width trains on the same batches with the same loss. Every epoch is
validated; the test part is read once, with the best epoch's weights. All of a run is in its folder:
settings.json, a checkpoint a model, metrics.jsonl, epochs.jsonl, results.json, curves.png,
status.json. How it ends, for schedulers: `examples.recommender.exits`.
"""

import dataclasses
import signal
import sys
import time
from pathlib import Path

if __package__ in (None, ""):  # run as a file: make `examples` importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from examples.recommender import checkpoint, exits
from examples.recommender.baselines import PaddedSASRec, Popularity
from examples.recommender.data import Sequences, Split, leave_one_out, read_sequences
from examples.recommender.distributed import World, choose_device, here, joined, leave
from examples.recommender.evaluate import evaluate
from examples.recommender.exits import Terminated, Termination
from examples.recommender.metrics import require_tensorboard
from examples.recommender.model import NextItemModel, hstu_encoder
from examples.recommender.report import EpochRecord, TestRecord, final_table, write_results
from examples.recommender.settings import Settings, parse
from examples.recommender.synthetic import synthetic_sequences
from examples.recommender.train import Trainer

ENCODERS = {"hstu": hstu_encoder, "sasrec": PaddedSASRec}


def main(arguments: list[str] | None = None) -> list[TestRecord]:
    """Train, print, write the run folder; returns the test figures, popularity first."""
    settings, folder, resume = parse(arguments)
    world = here()
    torch.set_num_threads(settings.threads)
    termination = Termination()
    tests: list[TestRecord] = []
    try:
        check_requirements(settings, world)
        device = choose_device(settings.device, world)
        if settings.captured and (world.launched or device.type != "cuda"):
            raise ValueError(f"--captured needs a GPU and no torchrun, got {device}")
        sequences = load(settings)
        split = leave_one_out(sequences, settings.max_length)
    except (ImportError, OSError, ValueError) as error:
        raise SystemExit(f"train_recommender: {error}") from error
    with termination.watched(), joined(world, device):
        if folder is None:
            folder = Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{sequences.name}"
        folder, resume = world.same((folder, resume))
        if world.first:
            try:
                if not resume:
                    # Under torchrun every process has a GPU of its own: only the kind is a setting.
                    used = device.type if world.launched else str(device)
                    start_folder(folder, dataclasses.replace(settings, device=used))
                exits.write_status(folder, None, "running, or killed")
            except OSError as error:
                raise SystemExit(f"train_recommender: {error}") from error
            print(describe(sequences, split, device, world, folder))
        world.wait()
        try:
            tests = train_and_test(settings, split, folder, device, resume, world, termination)
        except Terminated as end:
            code, reason = exits.RUN_AGAIN, f"{end}: continue with --resume {folder}"
        except FloatingPointError as error:
            code, reason = exits.NOT_FINITE, str(error)
        except checkpoint.Mismatch as error:
            code, reason = exits.WRONG_CHECKPOINT, str(error)
        except KeyboardInterrupt:
            print(f"\ninterrupted: continue with --resume {folder}", file=sys.stderr)
            raise SystemExit(128 + signal.SIGINT) from None
        else:
            code, reason = exits.DONE, "done"
        if world.first:
            exits.write_status(folder, code, reason)
    if code != exits.DONE:
        if world.first:
            print(f"train_recommender: {reason}", file=sys.stderr)
        raise SystemExit(code)
    return tests


def check_requirements(settings: Settings, world: World) -> None:
    """Look for what the settings need before anything is begun.

    Raises:
        ImportError: a package is missing.
        ValueError: sharded tables in a process that torchrun did not start.
    """
    if settings.tensorboard:
        require_tensorboard()
    if settings.tables == "sharded":
        if not world.launched:
            raise ValueError("--tables sharded needs torchrun (--nproc-per-node 1 will do)")
        from examples.recommender.tables import require_training_ops

        require_training_ops()


def train_and_test(
    settings: Settings,
    split: Split,
    folder: Path,
    device: torch.device,
    resume: bool,
    world: World,
    termination: Termination,
) -> list[TestRecord]:
    """Train every model to its end, then read the test part, once."""
    started = time.perf_counter()
    history: list[EpochRecord] = []
    trainers = []
    for name in settings.models:
        # Each model starts from the seed, whatever was trained before it.
        checkpoint.seed_everything(settings.seed)
        trainer = make_trainer(name, settings, split, folder, device, world, termination)
        if resume:
            trainer.resume()
        trainer.fit()
        history += trainer.history
        trainers.append(trainer)

    popular = Popularity(split.seen).scores
    found = evaluate(popular, split.test, split.num_items)
    tests = [TestRecord("popularity", 0, 0.0, found.hit_rate, found.ndcg)]
    for trainer in reversed(trainers):
        found = trainer.evaluate(split.test)
        spent = sum(record.seconds for record in trainer.history)
        tests.append(
            TestRecord(trainer.name, trainer.best_epoch, spent, found.hit_rate, found.ndcg)
        )
    if world.first:
        write_results(folder, history, tests, evaluate(popular, split.validation, split.num_items))
        print(f"\n{final_table(tests)}\n")
        print(f"{time.perf_counter() - started:.0f} s in all; curves and results in {folder}")
    return tests


def make_trainer(
    name: str,
    settings: Settings,
    split: Split,
    folder: Path,
    device: torch.device,
    world: World,
    termination: Termination,
) -> Trainer:
    """The trainer of a model, in this process alone or with others."""
    encoder = ENCODERS[name](settings)
    arguments = (split, settings, folder, device, world, termination)
    if not world.launched:
        if (folder / name).is_dir():
            raise SystemExit(
                f"train_recommender: {folder} is a run of several processes: continue it with "
                "torchrun (--nproc-per-node 1 will do)"
            )
        return Trainer(name, NextItemModel(encoder, split.seen, settings), *arguments)
    from examples.recommender.distributed_trainer import DistributedTrainer
    from examples.recommender.tables import ShardedNextItemModel

    if (folder / f"{name}.pt").exists():
        raise SystemExit(
            f"train_recommender: {folder} is a run without torchrun: continue it without"
        )
    kind = ShardedNextItemModel if settings.tables == "sharded" else NextItemModel
    return DistributedTrainer(name, kind(encoder, split.seen, settings), *arguments)


def start_folder(folder: Path, settings: Settings) -> None:
    """Make an empty run folder that knows its settings."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise SystemExit(
            f"train_recommender: {folder} is not empty: continue that run with --resume {folder}, "
            "or give another --out"
        )
    checkpoint.write_text(folder / "settings.json", settings.to_json())


def load(settings: Settings) -> Sequences:
    """The file, or the synthetic stream where none is given."""
    if settings.data is not None:
        return read_sequences(Path(settings.data))
    return synthetic_sequences(
        settings.synthetic_users, settings.synthetic_items, seed=settings.seed
    )


def describe(
    sequences: Sequences, split: Split, device: torch.device, world: World, folder: Path
) -> str:
    """The lines that a run starts with."""
    lengths = sequences.rows.lengths()
    skipped = f" ({split.skipped} with fewer than 3 items left out)" if split.skipped else ""
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    many = f"{world.size} x " if world.size > 1 else ""
    return (
        f"{sequences.name}: {len(lengths):,} users{skipped}, {split.num_items:,} items, "
        f"{int(lengths.sum()):,} events, {int(lengths.min())} to {int(lengths.max())} a user "
        f"(mean {lengths.double().mean():.1f})\non {many}{where}; run folder {folder}"
    )


if __name__ == "__main__":
    main()
    if here().launched:
        leave()
