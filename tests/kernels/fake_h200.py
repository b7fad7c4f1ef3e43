"""Pretend an H200 (sm_90), so that Helion generates CUDA code for fake tensors without a GPU."""

import contextlib
import types
from collections.abc import Iterator
from unittest import mock

import torch
from torch import Tensor
from torch._dynamo.source import ConstantSource
from torch._inductor.runtime import hints
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

SHARED_MEMORY = 232448  # bytes a block may use
CAPABILITY = (9, 0)
_PROPERTIES = types.SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=139 * 2**30,
    warp_size=32,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=SHARED_MEMORY,
    shared_memory_per_multiprocessor=233472,
    L2_cache_size=60 * 2**20,
    gcnArchName="",
    is_integrated=False,
    is_multi_gpu_board=False,
    uuid="",
)


@contextlib.contextmanager
def fake_h200() -> Iterator[None]:
    """torch.cuda answers as on an H200 inside."""
    answers = {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_capability": lambda device=None: CAPABILITY,
        "get_device_properties": lambda device=None: _PROPERTIES,
        "get_device_name": lambda device=None: _PROPERTIES.name,
        "_lazy_init": lambda: None,
    }
    inductor = hints.DeviceProperties(
        type="cuda",
        index=0,
        multi_processor_count=132,
        cc=90,
        major=9,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        warp_size=32,
    )
    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        stack.enter_context(mock.patch.object(torch.version, "cuda", "13.0"))
        create = classmethod(lambda cls, device: inductor)
        stack.enter_context(mock.patch.object(hints.DeviceProperties, "create", create))
        yield


class FakeDevice:
    """Tensors that seem to be on the H200, with sizes that Helion must keep symbolic."""

    def __init__(self) -> None:
        self._shapes = ShapeEnv(duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self._shapes)

    def tensor(self, like: Tensor, dynamic: tuple[int, ...]) -> Tensor:
        """Shape, strides and dtype of `like`; the dimensions in `dynamic` are symbols."""
        shape = [
            self._symbol(size) if dim in dynamic and size > 1 else size
            for dim, size in enumerate(like.shape)
        ]
        with self.mode:
            return torch.empty_strided(shape, like.stride(), dtype=like.dtype, device="cuda:0")

    def _symbol(self, size: int) -> torch.SymInt:
        source = ConstantSource(f"size_{len(self._shapes.var_to_range)}")
        symbol = self._shapes.create_symbol(size, source, DimDynamic.DYNAMIC, None)
        made = self._shapes.create_symintnode(symbol, hint=size, source=source)
        assert isinstance(made, torch.SymInt)
        return made
