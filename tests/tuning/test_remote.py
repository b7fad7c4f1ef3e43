"""The Redis backend against a real server: entries, order, outage, damage."""

import json
import sys
import time
from pathlib import Path

import pytest
import redis

from jagged.tuning import remote
from jagged.tuning.remote import RedisBackend
from tests.tuning.redis_server import RedisServer


def entry(number: int) -> str:
    config = {"block_sizes": [number]}
    return json.dumps(
        {"config": json.dumps(config), "key": {"fields": {"hardware": "NVIDIA H200"}}}
    )


@pytest.fixture
def backend(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> RedisBackend:
    monkeypatch.setenv("REDIS_URL", server.url)
    return RedisBackend()


def test_gives_back_what_it_was_told(backend: RedisBackend) -> None:
    assert backend.get("one") is None
    backend.put("one", entry(1))
    backend.put("two", entry(2))
    assert backend.get("one") == entry(1)
    backend.put("one", entry(3))
    assert backend.get("one") == entry(3)
    assert backend.get("two") == entry(2)


def test_others_find_it_where_the_documentation_says(
    backend: RedisBackend, server: RedisServer
) -> None:
    backend.put("shared", entry(7))
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        assert client.get("helion:config:shared") == entry(7)
        assert client.zrange("helion:configs", 0, -1) == ["shared"]


def test_lists_the_newest_first(backend: RedisBackend) -> None:
    assert list(backend.list()) == []
    for number in range(4):
        backend.put(str(number), entry(number))
    backend.put("1", entry(11))
    assert list(backend.list()) == [entry(11), entry(3), entry(2), entry(0)]
    assert list(backend.list(max_results=2)) == [entry(11), entry(3)]
    assert list(backend.list(max_results=0)) == []


def test_leaves_out_what_the_server_dropped(backend: RedisBackend, server: RedisServer) -> None:
    backend.put("kept", entry(1))
    backend.put("dropped", entry(2))
    with redis.Redis.from_url(server.url) as client:
        client.delete("helion:config:dropped")
    assert list(backend.list()) == [entry(1)]


def test_the_disk_is_the_truth(backend: RedisBackend, folder: Path) -> None:
    backend.put("key", entry(1))
    local = folder / "key.best_config"
    local.write_text(entry(2))
    assert backend.get("key") is None  # which makes Helion read the disk
    local.write_text("half of an en")
    assert backend.get("key") == entry(1)


def test_a_damaged_entry_counts_as_missing(backend: RedisBackend, server: RedisServer) -> None:
    backend.put("good", entry(1))
    for damage in (b"\xff\xfe", b"{", b"{}", b"[]"):
        with redis.Redis.from_url(server.url) as client:
            client.set("helion:config:bad", damage)
            client.zadd("helion:configs", {"bad": 0})
        with pytest.warns(RuntimeWarning, match="damaged entry, which counts as missing: bad"):
            assert backend.get("bad") is None
        with pytest.warns(RuntimeWarning, match="damaged entry"):
            assert list(backend.list()) == [entry(1)]


def test_an_outage_warns_once(
    backend: RedisBackend, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.put("key", entry(1))
    server.stop()

    def all_questions() -> list[object]:
        backend.put("key", entry(2))
        other = RedisBackend()  # Helion makes one for each kernel
        return [backend.get("key"), list(backend.list()), other.get("key")]

    with pytest.warns(RuntimeWarning, match=r"config cache at 127\.0\.0\.1:\d+ failed") as caught:
        answers = all_questions()
    assert answers == [None, [], None]
    assert len(caught) == 1
    monkeypatch.setattr(remote, "PAUSE", 0.0)
    later = time.monotonic() + 3600
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert backend.get("key") is None  # asked again, without a second warning
    server.start()
    backend.put("key", entry(3))
    assert backend.get("key") == entry(3)


def test_a_failed_server_is_left_alone(
    backend: RedisBackend, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.stop()
    with pytest.warns(RuntimeWarning, match="written to the local disk alone"):
        backend.put("key", entry(1))
    server.start()
    backend.put("key", entry(1))
    assert backend.get("key") is None
    passed = time.monotonic() + remote.PAUSE
    monkeypatch.setattr(time, "monotonic", lambda: passed)
    backend.put("key", entry(1))
    assert backend.get("key") == entry(1)


def test_a_wrong_password_is_an_outage_that_hides_it(server: RedisServer) -> None:
    class Locked(RedisBackend):
        url = server.url.replace("redis://", "redis://someone:secret@")

    with pytest.warns(RuntimeWarning, match="config cache at 127") as caught:
        assert Locked().get("key") is None
    assert "secret" not in str(caught[0].message)


def test_needs_an_address(server: RedisServer) -> None:
    class TeamCache(RedisBackend):
        url = server.url

    TeamCache().put("key", entry(1))
    assert TeamCache().get("key") == entry(1)
    with pytest.raises(ValueError, match="set REDIS_URL, such as redis://localhost:6379/0"):
        RedisBackend()


def test_refuses_an_address_of_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "http://localhost")
    with pytest.raises(ValueError, match="Redis URL must specify one of"):
        RedisBackend()


def test_names_the_extra_without_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.setenv("REDIS_URL", "redis://localhost:1/9")
    with pytest.raises(ImportError, match=r"pip install 'jagged-layers\[redis\]'"):
        RedisBackend()
