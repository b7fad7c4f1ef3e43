"""Fixtures of all tests: poisoned allocation, fixed seeds, one device argument."""

from collections.abc import Iterator

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=25)
hypothesis.settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="device of the op tests: cpu or cuda")


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
