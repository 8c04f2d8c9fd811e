"""`peltier serve` in a process that is forked from one that has imported torch and the server.

The imports take two seconds of a core, which is most of the work of a start. Linux alone has what this needs.
"""

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_IMPORTED = ("peltier_client.cli", "peltier_server.app", "peltier_server.http.process", "uvicorn.loops.auto")
_MAX_REQUEST_BYTES = 65536


class ForkedServer:
    """One process, with the methods of `subprocess.Popen` that tests call."""

    def __init__(self, arguments: Sequence[str], log: Path, environment: dict[str, str], first: str = "") -> None:
        """`first` is Python that the process runs before the command."""
        self.returncode: int | None = None
        request = {"arguments": [*arguments], "environment": environment, "directory": os.getcwd(), "first": first}
        self._status, status = os.pipe()
        with log.open("w") as output:
            socket.send_fds(_forker(), [json.dumps(request).encode()], [output.fileno(), status])
        os.close(status)
        self.pid = int(_forker().recv(_MAX_REQUEST_BYTES))

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while the process runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit status; raises `TimeoutExpired`."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("peltier serve", timeout or 0)
            self.returncode = int(os.read(self._status, 16))
            os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)


@cache
def _forker() -> socket.socket:
    """The connection to the process that forks; started once."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.support.forked_server", str(theirs.fileno())]
        process = subprocess.Popen(command, cwd=_ROOT, pass_fds=[theirs.fileno()])

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _fork_on_request(connection: socket.socket) -> None:
    """Forks a process for each request, and writes the exit statuses. Returns in each of these processes; the one that
    forks exits at the end of the connection."""
    running: dict[int, tuple[int, int]] = {}  # id and where the status goes, by a descriptor that tells the end
    while True:
        ready = select.select([connection.fileno(), *running], [], [])[0]
        for ended in running.keys() & set(ready):
            pid, status = running.pop(ended)
            os.write(status, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
            os.close(status)
            os.close(ended)
        if connection.fileno() in ready:
            data, descriptors, *_ = socket.recv_fds(connection, _MAX_REQUEST_BYTES, 2)
            if not data:
                sys.exit()
            output, status = descriptors
            pid = os.fork()
            if not pid:
                connection.close()
                os.close(status)
                _become(json.loads(data), output)
                return
            os.close(output)
            running[os.pidfd_open(pid)] = pid, status
            connection.send(str(pid).encode())


def _become(request: dict[str, Any], output: int) -> None:
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["peltier", *request["arguments"]]
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    exec(request["first"], {})  # noqa: S102 - the test's own program


def main() -> None:
    from peltier_backbone.machine.cores import wait_passively

    wait_passively()
    for name in _IMPORTED:
        import_module(name)
    gc.freeze()
    _fork_on_request(socket.socket(fileno=int(sys.argv[1])))
    from peltier_client import cli

    cli.main()


if __name__ == "__main__":
    main()
