"""A Redis server for the tests, without files on disk."""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.common.ports import ReservedPort

_PROGRAM = "redis-server"


@dataclass
class Redis:
    """A running server; `stop` and `start` are an outage."""

    port: int
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns once it answers."""
        words = (_PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not _answers(self.port):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def hang(self) -> None:
        """It accepts connections and does not answer."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def stop(self) -> None:
        """Returns once it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def running(directory: Path) -> Iterator[Redis]:
    """A Redis, or a skipped test where the machine has none."""
    if shutil.which(_PROGRAM) is None:
        pytest.skip(f"{_PROGRAM} is not installed")
    with ReservedPort() as port:
        redis = Redis(port.number, directory / "redis.log")
        redis.start()
        try:
            yield redis
        finally:
            redis.stop()


def _answers(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0
