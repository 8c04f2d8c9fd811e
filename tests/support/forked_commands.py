"""A program `peltier` whose processes are forked from one that has imported what the command needs.

The imports of `peltier train` take ten seconds of a core, which is most of a training on a few rows. Linux alone has
what this needs.
"""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_MAX_REQUEST_BYTES = 131072
# What commands import when they run. It stays imported for those that follow.
_IMPORTED: Mapping[str, Sequence[str]] = {
    "serve": ("peltier_server.cli", "peltier_server.app", "peltier_server.http.process", "uvicorn.loops.auto"),
    "train": ("peltier_training.commands", "peltier_training.train"),
    "evaluate": ("peltier_training.commands", "peltier_training.train"),
    "inspect": ("peltier_adapters.commands",),
    "presets": ("peltier_adapters.commands",),
}
# It is called as `peltier` or as `python -m peltier_client`. A signal that ends it also ends the command.
_PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys

def forward(number, frame):
    os.kill(process, number)

words = sys.argv[3:] if sys.argv[1:3] == ["-m", "peltier_client"] else sys.argv[1:]
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as forker:
    forker.connect({address!r})
    request = {{"arguments": words, "environment": dict(os.environ), "directory": os.getcwd()}}
    socket.send_fds(forker, [json.dumps(request).encode()], [0, 1, 2])
    process = int(forker.recv(16))
    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, forward)
    status = int(forker.recv(16))
sys.exit(status if status >= 0 else 128 - status)
"""


@contextmanager
def forked_commands() -> Iterator[Path]:
    """The path of the program; at the end of the block it is gone, and none of its processes is left."""
    # The name of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="peltier-") as folder:
        address, program = f"{folder}/socket", Path(folder, "peltier")
        program.write_text(_PROGRAM.format(python=sys.executable, address=address))
        program.chmod(0o755)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(address)
            listener.listen()
            command = [sys.executable, "-m", "tests.support.forked_commands", str(listener.fileno())]
            process = subprocess.Popen(command, cwd=_ROOT, pass_fds=[listener.fileno()], start_new_session=True)
        try:
            yield program
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _fork_on_request(listener: socket.socket) -> None:
    """Forks a process for each connection, which sends its id and its exit status there. Returns in the command's
    process."""
    while True:
        connection, _ = listener.accept()
        data, streams, *_ = socket.recv_fds(connection, _MAX_REQUEST_BYTES, 3)
        request = json.loads(data)
        for name in _IMPORTED.get(next(iter(request["arguments"]), ""), ()):
            import_module(name)
        gc.freeze()
        if not os.fork():
            listener.close()
            _run(request, streams, connection)
            return
        connection.close()
        for stream in streams:
            os.close(stream)


def _run(request: Mapping[str, Any], streams: Sequence[int], connection: socket.socket) -> None:
    """Returns in the process of the command; the one that has forked it waits for its end and exits."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    command = os.fork()
    if command:
        connection.send(str(command).encode())
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])).encode())
        os._exit(0)
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["peltier", *request["arguments"]]


def main() -> None:
    """Serves the requests of the programs."""
    from peltier_backbone.machine.cores import wait_passively
    from peltier_client import cli

    wait_passively()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets those that have ended
    _fork_on_request(socket.socket(fileno=int(sys.argv[1])))
    cli.main()


if __name__ == "__main__":
    main()
