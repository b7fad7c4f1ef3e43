"""What a training run is made of: one record, its command line, and its place on disk."""

import argparse
import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from examples.recommender.presets import PRESETS
from examples.recommender.synthetic import NUM_GENRES

MODELS = ("hstu", "sasrec")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that decides the numbers of a run, apart from the contents of the data file."""

    data: str | None = None
    models: tuple[str, ...] = MODELS
    layer: Literal["research", "production"] = "research"
    width: int = 64
    layers: int = 2
    heads: int = 1
    max_length: int = 200
    window: int = 0
    position_bias: bool = True
    dropout: float = 0.4
    input_dropout: float = 0.4
    item_dropout: float = 0.0
    tied: bool = True
    temperature: float = 0.08
    repeat_bias: bool = False
    loss: Literal["uniform", "in-batch", "full"] = "uniform"
    negatives: int = 1024
    horizon: int = 1
    horizon_decay: float = 0.5
    epochs: int = 16
    token_budget: int = 2048
    learning_rate: float = 2e-3
    weight_decay: float = 0.0
    seed: int = 0
    device: str = "auto"
    captured: bool = False
    threads: int = 1
    checkpoint_steps: int = 0
    log_steps: int = 20
    tensorboard: bool = False
    tables: Literal["replicated", "sharded"] = "replicated"
    table_learning_rate: float = 0.05
    synthetic_users: int = 4_000
    synthetic_items: int = 3_000

    def __post_init__(self) -> None:
        for name in (
            "width",
            "layers",
            "heads",
            "max_length",
            "negatives",
            "horizon",
            "epochs",
            "threads",
            "log_steps",
            "synthetic_users",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("window", "weight_decay", "checkpoint_steps"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(
                    f"{name} must not be negative or infinite, got {getattr(self, name)}"
                )
        if self.synthetic_items < NUM_GENRES:
            raise ValueError(
                f"synthetic_items must be at least {NUM_GENRES}, got {self.synthetic_items}"
            )
        if not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"seed must be in -2**63..2**63 - 1, got {self.seed}")
        if self.width % self.heads != 0:
            raise ValueError(f"heads must divide width {self.width}, got {self.heads}")
        if self.token_budget < self.max_length:
            raise ValueError(
                f"token_budget must hold a row of max_length {self.max_length}, "
                f"got {self.token_budget}"
            )
        for name in ("dropout", "input_dropout", "item_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)}")
        for name in (
            "temperature",
            "learning_rate",
            "table_learning_rate",
            "horizon_decay",
        ):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {getattr(self, name)}")
        if self.repeat_bias and self.loss != "full":
            raise ValueError(f"repeat_bias is learned by the full loss alone, got {self.loss}")
        if self.tables == "sharded" and self.loss == "full":
            raise ValueError(
                "tables sharded needs a sampled loss (uniform or in-batch), got full: a softmax "
                "over all items would bring the whole table to every process in every step"
            )
        unknown = sorted(set(self.models) - set(MODELS))
        if unknown or not self.models or len(set(self.models)) < len(self.models):
            raise ValueError(
                f"models must be among {list(MODELS)}, each once, got {list(self.models)}"
            )

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        """The inverse of `to_json`.

        Raises:
            ValueError: the text is of another version of this program, or no settings at all.
        """
        fields: dict[str, Any] = json.loads(text)
        unknown = sorted(set(fields) - {field.name for field in dataclasses.fields(cls)})
        if unknown or "models" not in fields:
            raise ValueError(
                "settings must have models and no names that this program does not know, got "
                + ", ".join(unknown or fields)
            )
        return cls(**{**fields, "models": tuple(fields["models"])})


HELP = {
    "data": "file of sequences, `user item item ...` a line, all integers, oldest first; without "
    "it a seeded synthetic stream",
    "models": "what to train",
    "layer": "the published HSTU layer to stack",
    "width": "features of an item",
    "layers": "number of layers, of both models",
    "heads": "attention heads, of both models",
    "max_length": "the newest events of a user that a model sees",
    "window": "how far back an event looks, 0 for no limit (HSTU)",
    "position_bias": "a learned bias by the distance of two events (research layer)",
    "dropout": "dropout probability in the layers, of both models",
    "input_dropout": "dropout probability of the features of the items that are read",
    "item_dropout": "probability that an item is read as nothing at all",
    "tied": "score items by the embeddings that are read, instead of a second table",
    "temperature": "what cosine similarities are divided by",
    "repeat_bias": "add a learned bias to the scores of items that the user has had (full loss)",
    "loss": "softmax over uniform or in-batch negatives, or over all items",
    "negatives": "negatives of a batch, for the sampled losses",
    "horizon": "how many of the next items an event is to predict",
    "horizon_decay": "the share in the loss of an item, over that of the one before it",
    "epochs": "passes over the training part",
    "token_budget": "the most events in a batch, of all processes together",
    "learning_rate": "of AdamW: a short warm-up, then a cosine to a tenth",
    "weight_decay": "of AdamW, on matrices other than embeddings",
    "seed": "of everything random",
    "device": "auto (a GPU where there is one), cpu, cuda, cuda:1, ...",
    "captured": "run the training step of HSTU as one CUDA graph (one process with a GPU)",
    "threads": "CPU threads; these models are small, so that more help only on an idle machine",
    "checkpoint_steps": "also checkpoint after so many steps; 0: at the end of each epoch only",
    "log_steps": "read the loss, look for a NaN, answer SIGTERM and log every so many steps",
    "tensorboard": "also write TensorBoard's files to the run folder",
    "tables": "item tables whole on every process, or their rows on all of them (torchrun)",
    "table_learning_rate": "of row-wise Adagrad, which sharded tables have",
    "synthetic_users": "users of the synthetic stream",
    "synthetic_items": "items of the synthetic stream",
}
CHOICES = {
    "models": MODELS,
    "layer": ("research", "production"),
    "loss": ("uniform", "in-batch", "full"),
    "tables": ("replicated", "sharded"),
}


def parse(arguments: list[str] | None) -> tuple[Settings, Path | None, bool]:
    """The settings, the run folder (None: make a new one), and whether to continue there."""
    parser = _parser()
    given = vars(parser.parse_args(arguments))
    out, resume, go_on = given.pop("out"), given.pop("resume"), given.pop("go_on")
    if go_on and out is None:
        parser.error("--continue needs the run folder as --out")
    if resume is not None:
        if given or out is not None:
            extra = sorted(["out"] if out is not None else []) + sorted(given)
            parser.error(
                "--resume continues with the settings of the run, so drop "
                + ", ".join("--" + name.replace("_", "-") for name in extra)
            )
        file = resume / "settings.json"
        if not file.is_file():
            parser.error(f"--resume must name a run folder, but there is no {file}")
        return _read(parser, file), resume, True
    given = {**PRESETS.get(given.pop("preset", ""), {}), **given}
    if "models" in given:
        given["models"] = tuple(given["models"])
    if "data" in given:
        given["data"] = str(Path(given["data"]).resolve())  # to be found from any folder
    try:
        settings = Settings(**given)
    except ValueError as error:
        parser.error(str(error))
    begun = go_on and (out / "settings.json").is_file()
    if begun:
        _same_settings(parser, settings, out / "settings.json")
    return settings, out, begun


def _parser() -> argparse.ArgumentParser:
    """One option for each field of `Settings`, given only where the user gave it, and four more."""
    parser = argparse.ArgumentParser(
        prog="train_recommender",
        usage="%(prog)s [--data FILE] [--out FOLDER] [options: see --help]",
        description="Train an HSTU next-item recommender beside two baselines.",
    )
    parser.add_argument("--out", type=Path, help="run folder (default: runs/TIME-DATA)")
    parser.add_argument(
        "--resume", type=Path, metavar="RUN", help="continue the run in that folder, exactly"
    )
    parser.add_argument(
        "--continue",
        action="store_true",
        dest="go_on",
        help="go on with the run in --out if it has begun: for schedulers that repeat a command",
    )
    parser.add_argument(
        "--preset",
        choices=sorted(PRESETS),
        default=argparse.SUPPRESS,
        help="settings chosen for known data; other options change them",
    )
    defaults = Settings()
    for field in dataclasses.fields(Settings):
        name = field.name
        value = getattr(defaults, name)
        options: dict[str, Any] = {"default": argparse.SUPPRESS}
        if isinstance(value, bool):
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["type"] = str if value is None or isinstance(value, tuple) else type(value)
            options["choices"] = CHOICES.get(name)
            options["nargs"] = "+" if isinstance(value, tuple) else None
        shown = " ".join(value) if isinstance(value, tuple) else value
        text = HELP[name] if value is None else f"{HELP[name]} (default: {shown})"
        parser.add_argument(f"--{name.replace('_', '-')}", help=text, **options)
    return parser


def _read(parser: argparse.ArgumentParser, file: Path) -> Settings:
    try:
        return Settings.from_json(file.read_text(encoding="utf-8"))
    except (OSError, TypeError, ValueError) as error:
        parser.error(f"{file}: {error}")


def _same_settings(parser: argparse.ArgumentParser, settings: Settings, file: Path) -> None:
    ours, theirs = (dataclasses.asdict(one) for one in (settings, _read(parser, file)))
    differ = [name for name in ours if name != "device" and ours[name] != theirs[name]]
    if differ:
        parser.error(
            f"--continue must repeat the settings of the run, but {file} has "
            + ", ".join(f"{name} {theirs[name]} in place of {ours[name]}" for name in differ)
        )
