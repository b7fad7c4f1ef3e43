"""One process or many: who this one is, and what all of them do together.

`torchrun` tells each process by environment variables who it is and where the others are, on one
node or several; without them this process is alone and nothing here communicates.
"""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """The processes of a run.

    Args:
        rank: of this process, from 0; rank 0 writes and prints.
        size: how many there are.
        local_rank: of this process among those of its node.
        local_size: how many its node has.
        launched: a process group exists, maybe of one.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    launched: bool = False

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.size > 1:
            distributed.all_reduce(values)
        return values

    def same(self, value: T) -> T:
        """What rank 0 has, for all processes."""
        if self.size == 1:
            return value
        box = [value]
        distributed.broadcast_object_list(box)
        return box[0]

    def wait(self) -> None:
        """Until every process is here."""
        if self.size > 1:
            distributed.barrier()

    def replicate(self, model: nn.Module) -> Any:
        """The model, called in its place: its gradients are means over the processes."""
        if not self.launched:
            return model
        with warnings.catch_warnings():  # of a new name of the argument, which torch 2.11 lacks
            warnings.filterwarnings("ignore", ".*broadcast_buffers", FutureWarning)
            return DistributedDataParallel(
                model, broadcast_buffers=False, gradient_as_bucket_view=True
            )


def here() -> World:
    """The world that torchrun describes, or that of a single process."""
    if "LOCAL_RANK" not in os.environ:
        return World()
    return World(
        rank=int(os.environ["RANK"]),
        size=int(os.environ["WORLD_SIZE"]),
        local_rank=int(os.environ["LOCAL_RANK"]),
        local_size=int(os.environ["LOCAL_WORLD_SIZE"]),
        launched=True,
    )


def choose_device(wanted: str, world: World) -> torch.device:
    """`auto` is a GPU where there is one; each process of a node takes its own.

    Raises:
        ValueError: no name of a CPU or GPU, a GPU that is not here, a numbered GPU for several
            processes, or fewer GPUs than processes.
    """
    message = f"device must be auto, cpu, cuda or cuda:1, got {wanted}"
    try:
        device = torch.device(wanted if wanted != "auto" else _automatic())
    except RuntimeError as error:
        raise ValueError(message) from error
    if device.type not in ("cpu", "cuda"):
        raise ValueError(message)
    if device.type == "cpu":
        return device
    if (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"{message} where there are {torch.cuda.device_count()} GPUs")
    if not world.launched:
        return device
    if device.index is not None and world.size > 1:
        raise ValueError(f"device must be cuda under torchrun, which numbers them, got {wanted}")
    if world.local_rank >= torch.cuda.device_count():
        raise ValueError(
            f"each process of a node needs a GPU, got local rank {world.local_rank} and "
            f"{torch.cuda.device_count()} GPUs: lower --nproc-per-node"
        )
    return torch.device("cuda", world.local_rank if device.index is None else device.index)


@contextmanager
def joined(world: World, device: torch.device) -> Iterator[None]:
    """Meet the other processes, and part from them where no error came between."""
    if not world.launched:
        yield
        return
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device)
    store, rank, size = next(rendezvous("env://"))
    # torchrun keeps its store when it restarts the processes, and in it where the dead ones were.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
        store=PrefixStore(f"attempt {attempt}", store),
        rank=rank,
        world_size=size,
        device_id=device if on_gpu else None,
    )
    yield
    # After an error others may wait in a collective: then the process just ends, and torchrun
    # ends the others.
    distributed.destroy_process_group()


def leave() -> None:
    """End a process that torchrun started and that is done, without the interpreter's own end.

    Threads of gloo outlive their group. One that lets go of a Python object while the interpreter
    ends aborts the process, and torchrun calls the run failed (pytorch/pytorch#179291).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _automatic() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
