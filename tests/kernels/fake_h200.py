"""Pretend an H200 (sm_90), so that Helion generates CUDA code for fake tensors without a GPU."""

import contextlib

from jagged.tuning.offline import H200, FakeDevice, pretend

__all__ = ["CAPABILITY", "SHARED_MEMORY", "FakeDevice", "fake_h200"]

CAPABILITY, SHARED_MEMORY = H200.capability, H200.shared_memory


def fake_h200() -> contextlib.AbstractContextManager[None]:
    """torch.cuda answers as on an H200 inside."""
    return pretend(H200)
