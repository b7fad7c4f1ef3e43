"""Redis as the place where a team and its CI share tuned configs.

Helion asks a `RemoteCacheBackend` before it tunes and tells it what it found. With this one,

    pip install 'jagged-layers[gpu,redis]'
    export REDIS_URL=redis://cache.example:6379/0
    export HELION_REMOTE_CACHE_BACKEND=jagged.tuning.remote.RedisBackend
    export HELION_AUTOTUNE_CACHE=RemoteAutotuneCache

every kernel that anyone tuned is there for all. The local disk stays the truth: an entry that it
has is never replaced by one of the server's, and while the server cannot be reached, everything
goes on as without it, after one warning.

On the server: `helion:config:HASH` holds an entry as Helion writes it to disk (JSON text), the
sorted set `helion:configs` orders the hashes by the order of their arrival.
"""

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from helion.autotuner import RemoteCacheBackend
from helion.autotuner.local_cache import get_helion_cache_dir, parse_cache_entry

Result = TypeVar("Result")

TIMEOUT = 2.0  # seconds for a connection or an answer
PAUSE = 60.0  # seconds without a question to a server that failed


class RedisBackend(RemoteCacheBackend):  # type: ignore[misc]  # mypy sees Helion as Any
    """Entries on the Redis server of `url`; for every kernel of a process one connection pool.

    `url` is the environment's REDIS_URL, unless a subclass names one:

        class TeamCache(RedisBackend):
            url = "redis://cache.example:6379/0"

    Raises:
        ImportError: the package `redis` is not installed.
        ValueError: there is no URL, or it is none of Redis.
    """

    url: str | None = None

    def __init__(self) -> None:
        url = self.url or os.environ.get("REDIS_URL")
        if not url:
            raise ValueError(
                "RedisBackend needs the address of a server: set REDIS_URL, such as "
                "redis://localhost:6379/0, or the attribute `url` of a subclass"
            )
        self._server = _server(url)

    def get(self, key: str) -> str | None:
        """The entry of `key`; None where there is none, it is damaged, or the disk has one."""
        if _on_disk(key):
            return None
        data = self._server.ask(lambda client: client.get(_name(key)), None)
        return None if data is None else _readable(key, data)

    def put(self, key: str, data: str) -> None:
        """Store `data`, an entry as JSON text; it becomes the newest."""

        def store(client: Any) -> None:
            with client.pipeline(transaction=True) as pipe:
                pipe.set(_name(key), data)
                pipe.zadd("helion:configs", {key: client.incr("helion:arrivals")})
                pipe.execute()

        self._server.ask(store, None)

    def list(self, max_results: int | None = None) -> Iterable[str]:
        """The newest entries, at most `max_results` of them."""
        if max_results is not None and max_results <= 0:
            return []
        last = -1 if max_results is None else max_results - 1

        def newest(client: Any) -> dict[str, bytes | None]:
            keys = [key.decode() for key in client.zrevrange("helion:configs", 0, last)]
            data = client.mget([_name(key) for key in keys]) if keys else []
            return dict(zip(keys, data, strict=True))

        nothing: dict[str, bytes | None] = {}
        found = self._server.ask(newest, nothing).items()
        # A server with a memory limit may have dropped an entry whose name is still in the set.
        entries = (_readable(key, data) for key, data in found if data is not None)
        return [entry for entry in entries if entry is not None]


class _Server:
    """A server's connections, and whether it may be asked. Helion makes a backend for each kernel,
    so an outage has to be known outside of the backend."""

    def __init__(self, url: str) -> None:
        try:
            import redis
        except ImportError as error:
            raise ImportError(
                "RedisBackend needs the Redis client: pip install 'jagged-layers[redis]'"
            ) from error
        self._failure = redis.RedisError
        self._client = redis.Redis.from_url(
            url, socket_connect_timeout=TIMEOUT, socket_timeout=TIMEOUT
        )
        # Without the password that the URL may hold.
        place = self._client.connection_pool.connection_kwargs
        self._place = place.get("path") or f"{place.get('host')}:{place.get('port')}"
        self._asked_again = 0.0
        self._warned = False

    def ask(self, question: Callable[[Any], Result], otherwise: Result) -> Result:
        """The server's answer, or `otherwise` while it cannot be reached."""
        if time.monotonic() < self._asked_again:
            return otherwise
        try:
            return question(self._client)
        except self._failure as error:
            self._asked_again = time.monotonic() + PAUSE
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"The config cache at {self._place} failed ({error}); configs are read from "
                    f"and written to the local disk alone. It is tried again every {PAUSE:.0f} "
                    "seconds, without a further warning.",
                    RuntimeWarning,
                    stacklevel=3,
                )
            return otherwise


_servers: dict[str, _Server] = {}
_lock = threading.Lock()


def _server(url: str) -> _Server:
    with _lock:
        if url not in _servers:
            _servers[url] = _Server(url)
        return _servers[url]


def _name(key: str) -> str:
    return f"helion:config:{key}"


def _on_disk(key: str) -> bool:
    """Whether Helion's local cache has a readable entry."""
    try:
        parse_cache_entry((get_helion_cache_dir() / f"{key}.best_config").read_text())
    except (OSError, ValueError):
        return False
    return True


def _readable(key: str, data: bytes) -> str | None:
    """The text of an entry, or None with a warning: Helion would stop at a damaged one."""
    try:
        text = data.decode()
        parse_cache_entry(text)
    except ValueError as error:
        warnings.warn(
            f"The config cache holds a damaged entry, which counts as missing: {key} ({error})",
            RuntimeWarning,
            stacklevel=3,
        )
        return None
    return text
