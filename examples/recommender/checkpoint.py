"""Files that are whole or absent, and the state of every random generator."""

import hashlib
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy
import torch

State = dict[str, Any]


class Mismatch(ValueError):
    """A checkpoint that this program, or this run, cannot go on from."""


def save(path: Path, state: State) -> None:
    """Write a checkpoint: tensors, numbers, strings, and lists and dicts of them."""
    _replace(path, lambda file: torch.save(state, file))


def load(path: Path) -> State:
    """Read a checkpoint to the CPU; nothing but data is unpickled.

    Raises:
        Mismatch: the file is no checkpoint, or a part of one.
    """
    try:
        state: State = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # what is no pickle may raise anything
        what = str(error).partition("\n")[0] or type(error).__name__
        raise Mismatch(
            f"{path} cannot be read ({what}): restore it, or move it away to train from the start"
        ) from error
    if not isinstance(state, dict):
        raise Mismatch(f"{path} must hold a checkpoint, got {type(state).__name__}")
    return state


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    _replace(path, lambda file: file.write(text.encode()))


def _replace(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write beside, flush to the disk, rename: a crash leaves the old file or the new one."""
    beside = path.with_name(path.name + ".tmp")
    with beside.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Flush a folder's entries to the disk, so that a rename in it survives a crash."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def generator_of(seed: str) -> torch.Generator:
    """A generator on the CPU that a text seeds: the same wherever and whenever it is made."""
    digest = hashlib.blake2b(seed.encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))


def seed_everything(seed: int) -> None:
    """Seed python, numpy and torch, GPUs included."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_state() -> State:
    """The state of every generator, as plain data."""
    name, keys, position, has_gauss, cached = numpy.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": [str(name), [int(key) for key in keys], position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_random_state(state: State) -> None:
    """Continue the generators where `random_state` saw them; those of GPUs that are here."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    numpy.random.set_state((name, numpy.array(keys, numpy.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    for index, of_gpu in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(of_gpu, index)
