"""A server on loopback, in its own process with one thread of the backbone, for benchmarks over HTTP."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

PELTIER = (sys.executable, "-m", "peltier_client")
_START_SECONDS, _END_SECONDS = 120, 30
_CPU_CLOCK = 2

# After SIGTERM a benchmark also ends its servers.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


@dataclass(frozen=True)
class Server:
    """A process that answers at `url`."""

    url: str
    process: "subprocess.Popen[bytes]"

    def wait_until_ready(self) -> None:
        """Returns once `/ready` says so. Raises RuntimeError if the process has ended or takes too long."""
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"the server at {self.url} has ended with status {self.process.returncode}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server at {self.url} has not become ready within {_START_SECONDS} s")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/ready", timeout=2).status_code == 200
        except httpx2.HTTPError:
            return False

    @property
    def cpu_seconds(self) -> float:
        """What the whole process has used of the cores until now, in user and kernel mode."""
        # The number of the clock of another process, as `clock_getcpuclockid` computes it. /proc counts ticks of 10 ms.
        return time.clock_gettime((~self.process.pid << 3) | _CPU_CLOCK)

    def core_share(self, seconds: float) -> float:
        """The CPU time that the process uses in the next `seconds`, as a share of one core."""
        begun, used = time.monotonic(), self.cpu_seconds
        time.sleep(seconds)
        return (self.cpu_seconds - used) / (time.monotonic() - begun)

    def counter(self, name: str) -> float:
        """The sum of a counter's samples at `/metrics`; of a histogram ask for its `_sum` or `_count`."""
        lines = httpx2.get(f"{self.url}/metrics", timeout=30).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


@contextmanager
def serving(
    *flags: str,
    store: Path | None = None,
    command: Sequence[str] = PELTIER,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """`peltier serve` with MiniLM over `store`, or a new one; `command` stands in for `peltier`."""
    with tempfile.TemporaryDirectory() as directory:
        place = store or Path(directory) / "store"
        fixed = ["--backbone", "minilm", "--store", str(place), "--threads", "1", "--lame-duck-seconds", "0"]
        with started([*command, "serve", *fixed, *flags], environment) as server:
            yield server


@contextmanager
def started(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A process that takes `--port` and says at `/ready` that it is, while the block runs."""
    port = free_port()
    own = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    server = Server(f"http://127.0.0.1:{port}", subprocess.Popen([*command, "--port", str(port)], env=own))
    try:
        server.wait_until_ready()
        yield server
    finally:
        _end(server.process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
