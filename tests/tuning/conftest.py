"""Fixtures of the cache tests: an empty cache folder, a Redis server, no switch set."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tuning.redis_server import RedisServer


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of this test; none of Helion's variables is set beside it."""
    for name in [name for name in os.environ if name.startswith("HELION_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("HELION_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A running, empty server of a port that no other test uses."""
    running = RedisServer(tmp_path_factory.mktemp("redis"))
    running.start()
    yield running
    running.stop()
