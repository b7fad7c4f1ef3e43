"""Fixtures of all tests: poisoned allocation, fixed seeds, one device argument."""

import os
from collections.abc import Iterator

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=25)
hypothesis.settings.load_profile("fixed")


# What torch says of itself on CUDA, and only there.
CUDA_WARNINGS = (
    "Attempting to run cuBLAS, but there was no current CUDA context",  # a backward pass's thread
    "Synchronization debug mode is a prototype feature",
    ".*Profiler clears events at the end of each cycle",
)
# With `-n N --dist loadgroup` a file's tests of an op run in one process, which compiles once.
OPS = (
    "token_layer_norm", "layer_norm", "norm_mul_dropout", "dense_add", "padded_add", "row_add",
    "dense_bmm", "jagged_bmm", "to_padded", "from_padded", "softmax", "mean", "sum",
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="device of the op tests: cpu or cuda")


def pytest_configure(config: pytest.Config) -> None:
    # torch.compile makes an instance of every autograd.Function that it traces and warns of it.
    config.addinivalue_line(
        "filterwarnings", "ignore:.*should not be instantiated:DeprecationWarning"
    )
    if config.getoption("--device") != "cpu":
        for message in CUDA_WARNINGS:
            config.addinivalue_line("filterwarnings", f"ignore:{message}:UserWarning")
        # cuBLAS refuses deterministic mode, which the poison needs, without a fixed workspace.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--device") == "cpu" or not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        file, _, rest = item.nodeid.partition("::")
        named = next((op for op in OPS if op in rest or op in file), "")
        item.add_marker(pytest.mark.xdist_group(f"{named} {file}"))


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.config.getoption("--device"))


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def poisoned(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fill what torch.empty returns with NaN, so that an element nobody writes shows."""
    if request.node.get_closest_marker("unpoisoned"):
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True, warn_only=False)
    yield
    torch.use_deterministic_algorithms(before)
