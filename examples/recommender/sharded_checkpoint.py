"""Checkpoints that many processes write together, each its own part.

A checkpoint is a folder `000007` in the folder of the model. It is written as `000007.tmp` by
`torch.distributed.checkpoint`, flushed to the disk and renamed: a folder with a number is whole.
All processes must see the same file system.
"""

import io
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.distributed.checkpoint import (
    api,
    filesystem,
    metadata,
    state_dict_loader,
    state_dict_saver,
)

from examples.recommender import checkpoint
from examples.recommender.checkpoint import State
from examples.recommender.distributed import World


class ShardedCheckpoints:
    """The checkpoints of one model: the newest, and the one of the best epoch.

    States are flat dicts: tensors (a replicated one is written once, a sharded one by its owners)
    and bytes.

    Args:
        folder: of the model, made when it is first written to.
        world: who writes.
    """

    def __init__(self, folder: Path, world: World) -> None:
        self.folder = folder
        self.world = world

    def newest(self) -> int | None:
        """The number of the newest checkpoint."""
        return self.world.same(max(self._numbers(), default=None))

    def save(self, state: State, best: int | None) -> int:
        """Write a checkpoint and return its number; older ones go, but for number `best`."""
        number = (self.newest() or 0) + 1
        beside = self.folder / f"{number:06d}.tmp"
        if self.world.first:
            self.folder.mkdir(exist_ok=True)
            for left in self.folder.glob("*.tmp"):
                shutil.rmtree(left)
        self.world.wait()
        with _quiet():
            state_dict_saver.save(
                state, storage_writer=filesystem.FileSystemWriter(beside, sync_files=True)
            )
        if self.world.first:
            checkpoint.sync_folder(beside)
            beside.rename(self._path(number))
            checkpoint.sync_folder(self.folder)
            for old in self._numbers() - {number, best}:
                shutil.rmtree(self._path(old))
        self.world.wait()
        return number

    def keys(self, number: int) -> dict[str, tuple[torch.Size, torch.dtype] | None]:
        """What a checkpoint holds: shape and dtype of tensors, None for bytes.

        Raises:
            checkpoint.Mismatch: files of it are missing or broken.
        """
        with _readable(self._path(number)):
            reader = filesystem.FileSystemReader(self._path(number))
            found = reader.read_metadata().state_dict_metadata
        return {
            key: (entry.size, entry.properties.dtype)
            if isinstance(entry, metadata.TensorStorageMetadata)
            else None
            for key, entry in found.items()
        }

    def load(self, number: int, state: State) -> None:
        """Read the entries that `state` has: tensors in place, bytes replaced; raises as `keys`."""
        with _quiet(), _readable(self._path(number)):
            state_dict_loader.load(
                state, storage_reader=filesystem.FileSystemReader(self._path(number))
            )

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}"

    def _numbers(self) -> set[int]:
        if not self.folder.is_dir():
            return set()
        return {int(path.name) for path in self.folder.iterdir() if path.name.isdigit()}


def packed(state: State) -> bytes:
    """Plain data and tensors as bytes."""
    box = io.BytesIO()
    torch.save(state, box)
    return box.getvalue()


def unpacked(data: bytes) -> State:
    """What `packed` took; nothing but data is unpickled."""
    state: State = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return state


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Name the checkpoint where files of it are missing or broken."""
    try:
        yield
    except (Exception, api.CheckpointException) as error:  # what is no pickle may raise anything
        causes = error.failures.values() if isinstance(error, api.CheckpointException) else ()
        what = repr(next((cause for cause, _ in causes), error)).partition("\\n")[0]
        raise checkpoint.Mismatch(
            f"{path} cannot be read ({what}): restore it, or move it away to go on from the one "
            "before, or from the start"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's notes on its own sharded tensors, which torchrec uses."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        yield
