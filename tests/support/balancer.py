"""HAProxy with the configuration that is shipped, as a process on a free port."""

import csv
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2

from benchmarks.common.ports import ReservedPort

HAPROXY = shutil.which("haproxy")
_CONFIGURATION = Path(__file__).parents[2] / "deploy" / "haproxy.cfg"
# Its names of the replicas.
_SERVERS = ("one", "two")
_START_SECONDS = 120


@dataclass(frozen=True)
class Balancer:
    """A HAProxy at `url`, with a socket for commands."""

    url: str
    commands: Path

    def wait_until_up(self, number: int) -> None:
        """Returns once it sends requests to the replica of this number."""
        deadline = time.monotonic() + _START_SECONDS
        while self._states(_SERVERS[number]) != {"UP"}:
            assert time.monotonic() < deadline, f"the balancer sends no requests to server {_SERVERS[number]}"
            time.sleep(0.05)

    def wait_until_idle(self) -> None:
        """Returns once it has no request. A caller may have its answer before, and then the request still counts for
        the load of its replica, so the next one may go to the other replica."""
        deadline = time.monotonic() + _START_SECONDS
        while any(int(row["scur"]) for row in self._servers()):
            assert time.monotonic() < deadline, "the balancer has requests that do not end"
            time.sleep(0.001)

    @contextmanager
    def trusting(self, number: int, backends: Sequence[str] = ("reads", "changes")) -> Iterator[None]:
        """It does not check this replica during the block: one that is slow to answer a check stays up. On a loaded
        machine a replica may answer no check for four seconds."""
        servers = [f"{backend}/{_SERVERS[number]}" for backend in backends]
        for server in servers:
            self._order(f"disable health {server}")
            self._order(f"set server {server} health up")
        yield
        for server in servers:
            self._order(f"enable health {server}")

    def _states(self, server: str) -> set[str]:
        return {row["status"] for row in self._servers() if row["svname"] == server}

    def _servers(self) -> list[dict[str, str]]:
        """The statistics of each server of each backend."""
        rows = csv.DictReader(self._ask("show stat").splitlines())
        return [row for row in rows if row["svname"] in _SERVERS]

    def _order(self, command: str) -> None:
        # HAProxy answers with an empty line if it has carried out the command.
        answer = self._ask(command)
        assert not answer, answer

    def _ask(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.commands))
            connection.sendall(f"{command}\n".encode())
            return connection.makefile().read().strip()


@contextmanager
def balanced(replicas: Sequence[str]) -> Iterator[Balancer]:
    """A HAProxy in front of two ready replicas at these addresses (`host:port`), once it is ready itself."""
    places = {f"PELTIER_REPLICA_{number}": replica for number, replica in enumerate(replicas, 1)}
    with ReservedPort() as port, TemporaryDirectory() as folder:
        address = f"127.0.0.1:{port.number}"
        made = Balancer(f"http://{address}", Path(folder, "commands.sock"))
        extra = Path(folder, "extra.cfg")
        extra.write_text(f"global\n    stats socket {made.commands} level admin\n")
        call = [str(HAPROXY), "-f", str(_CONFIGURATION), "-f", str(extra)]
        environment = {**os.environ, **places, "PELTIER_BIND": address}
        process = subprocess.Popen(call, env=environment, stderr=subprocess.DEVNULL)
        try:
            _wait_until_ready(f"{made.url}/ready", process)
            yield made
        finally:
            process.kill()
            process.wait()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the balancer has ended with status {process.returncode}"
        try:
            if httpx2.get(url, timeout=60).status_code == 200:
                return
        except httpx2.HTTPError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{url} has not become ready within {_START_SECONDS} s")
