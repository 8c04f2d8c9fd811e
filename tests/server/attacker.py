"""Helpers of the tests of hostile requests: raw sockets, a process with watched memory, and another caller."""

import contextlib
import json
import re
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path

_PAUSE_SECONDS = 0.01
TEXT = "the plot was not very good , and the actor is dull"


class Stopwatch:
    """The seconds since its creation, less those in which other processes kept the server's threads or this one from a
    core. So a bound on them says how long the server waits or computes, on a loaded machine too."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._delays = self._read_delays()
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Until now."""
        elapsed = time.monotonic() - self._started
        return elapsed - sum(delay - self._delays.get(path, 0) for path, delay in self._read_delays().items()) / 1e9

    def _read_delays(self) -> dict[Path, int]:
        """The nanoseconds that each thread has been ready to run without a core (sched-stats.rst of Linux)."""
        delays = {}
        for path in (Path("/proc/thread-self").resolve(), *Path(f"/proc/{self._pid}/task").iterdir()):
            with contextlib.suppress(OSError):  # the thread has ended, or the kernel does not count
                delays[path] = int((path / "schedstat").read_text().split()[1])
        return delays


@dataclass(frozen=True)
class AttackedServer:
    """A server process to attack; `demo` is the task it serves."""

    pid: int
    url: str

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    @property
    def memory_bytes(self) -> int:
        return self._status("VmRSS")

    @contextlib.contextmanager
    def bounded(self, max_bytes: int) -> Iterator[None]:
        """Fails if the process has ever had this much more in memory than before."""
        before = self.memory_bytes
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        yield
        grown = self._status("VmHWM") - before
        print(f"memory grew by {grown / 2**20:.0f} MiB")  # for `pytest -s`: docs/notes/reliability.md quotes it
        assert grown <= max_bytes, f"memory grew by {grown / 2**20:.0f} MiB"

    def connect(self, timeout_seconds: float = 60) -> socket.socket:
        return socket.create_connection(self.address, timeout=timeout_seconds)

    def say(self, request: bytes, timeout_seconds: float = 60) -> tuple[int, float]:
        """Sends bytes on a new connection and listens to its end: the status (0 without an answer), the seconds of a
        `Stopwatch`."""
        watch = Stopwatch(self.pid)
        with self.connect(timeout_seconds) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(request)
            return status_of(listen(connection)), watch.seconds
        return 0, watch.seconds

    def _status(self, name: str) -> int:
        match = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        assert match is not None
        return 1024 * int(match[1])


def listen(connection: socket.socket) -> bytes:
    """All bytes until the server closes the connection, or breaks it."""
    heard = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            heard += piece
    return heard


def status_of(answer: bytes) -> int:
    """The status of the first answer; 0 where there is none."""
    match = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    return int(match[1]) if match else 0


def post(path: str, body: bytes, *headers: str, length: object = None) -> bytes:
    """A request of JSON as bytes; `length` replaces the true content-length."""
    claims = len(body) if length is None else length
    lines = [
        f"POST {path} HTTP/1.1",
        "host: a",
        "content-type: application/json",
        f"content-length: {claims}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def send_for_ever(target: AttackedServer, connection: socket.socket, piece: bytes, max_seconds: float) -> None:
    """Sends `piece` again and again until the connection breaks, or fails."""
    watch = Stopwatch(target.pid)
    while watch.seconds < max_seconds:
        try:
            connection.sendall(piece)
        except OSError:
            return
    raise AssertionError(f"the server still listens after {max_seconds} s")


@dataclass
class Bystander:
    """A caller who predicts all the time over one connection, and expects the same answer each time."""

    target: AttackedServer
    seconds: list[float] = field(default_factory=list)
    answers: set[str] = field(default_factory=set)

    def call(self, connection: socket.socket) -> None:
        """One prediction. It is sent in one piece, so that its body does not stand still where this thread does."""
        watch = Stopwatch(self.target.pid)
        connection.sendall(post("/v1/tasks/demo/predict", json.dumps({"inputs": TEXT}).encode()))
        answer = HTTPResponse(connection)
        answer.begin()
        body = answer.read()
        self.seconds.append(watch.seconds)
        label = json.loads(body)["predictions"][0]["label"] if answer.status == 200 else body.decode()
        self.answers.add(label)

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.seconds)


@contextlib.contextmanager
def bystander(target: AttackedServer) -> Iterator[Bystander]:
    watch, ended = Bystander(target), threading.Event()
    with target.connect(60) as connection:

        def call() -> None:
            while not ended.wait(_PAUSE_SECONDS):
                watch.call(connection)
            watch.call(connection)

        watch.call(connection)
        thread = threading.Thread(target=call)
        thread.start()
        try:
            yield watch
        finally:
            ended.set()
            thread.join()
