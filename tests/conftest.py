"""Fixtures of all tests: poisoned allocation, fixed seeds, one device argument."""

import os
from collections.abc import Iterator

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=25)
hypothesis.settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="device of the op tests: cpu or cuda")


def pytest_configure(config: pytest.Config) -> None:
    # torch.compile makes an instance of every autograd.Function that it traces and warns of it.
    config.addinivalue_line(
        "filterwarnings", "ignore:.*should not be instantiated:DeprecationWarning"
    )
    if config.getoption("--device") != "cpu":
        # cuBLAS refuses deterministic mode, which the poison needs, without a fixed workspace.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


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
