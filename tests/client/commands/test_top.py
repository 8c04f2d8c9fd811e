"""`peltier top`, on a real terminal and without one."""

import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from typing import Any

import pytest
from peltier_client.commands import top

from tests.client.conftest import Answer, LittleServer
from tests.client.typed_commands import Peltier, peltier

__all__ = ["peltier"]

# Ctrl-C reaches the processes whose terminal this is.
_IN_OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""
# A server of these tests is lost because it says so, and not because it is slow.
_PATIENT = """
from peltier_client.cli import main
from peltier_client.commands import top
top._TIMEOUT_SECONDS = 60
main()
"""
_END_SECONDS = 120


class Terminal:
    """A pseudo-terminal of 80 columns and 24 lines that runs `peltier top`."""

    def __init__(self, *words: str) -> None:
        self.ours, self.theirs = pty.openpty()
        ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.theirs)
        self.written = ""
        env = {**os.environ, "TERM": "xterm-256color"}
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            env.pop(name, None)
        command = [sys.executable, "-c", _IN_OWN_TERMINAL, _PATIENT, "top", "--interval", "0.1", *words]
        streams = {"stdin": self.theirs, "stdout": self.theirs, "stderr": self.theirs}
        self.process = subprocess.Popen(command, env=env, start_new_session=True, **streams)

    def wait_for(self, text: str) -> None:
        """Reads until the terminal has shown `text`."""
        while text not in self.written:
            ready, _, _ = select.select([self.ours], [], [], _END_SECONDS)
            assert ready, self.written
            self.written += os.read(self.ours, 65536).decode(errors="replace")

    def type(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def end(self) -> int:
        """The exit status."""
        self.wait_for("\x1b[?1049l")
        return self.process.wait(_END_SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


def test_a_lost_server_is_named_and_q_ends_it(server: LittleServer) -> None:
    """The numbers stay; the terminal is as it was before."""
    terminal = Terminal("--url", server.url)
    try:
        terminal.wait_for("0 restarts")
        server.planned.extend(Answer(503, b"") for _ in range(4))
        terminal.wait_for("server lost; the numbers are of")
        terminal.type(b"q")
        assert terminal.end() == 0
        assert terminal.written.count("\x1b[?1049h") == 1
        assert termios.tcgetattr(terminal.theirs) == terminal.before
    finally:
        terminal.close()


@pytest.mark.parametrize(("end", "status"), [(b"\x03", 130), (signal.SIGTERM, 0)], ids=["ctrl-c", "sigterm"])
def test_signals_restore_the_terminal(server: LittleServer, end: Any, status: int) -> None:
    """As q does."""
    terminal = Terminal("--url", server.url)
    try:
        terminal.wait_for("0 restarts")
        terminal.type(end) if isinstance(end, bytes) else terminal.process.send_signal(end)
        assert terminal.end() == status
        assert termios.tcgetattr(terminal.theirs) == terminal.before
        assert "Traceback" not in terminal.written
    finally:
        terminal.close()


def test_a_pipe_gets_lines(server: LittleServer) -> None:
    """One an interval, also while the server is lost; a reader that goes away ends it without a traceback."""
    command = [sys.executable, "-c", _PATIENT, "top", "--interval", "0.1", "--url", server.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert " ready  " in process.stdout.readline()
        server.planned.extend(Answer(503, b"") for _ in range(3))
        lines = iter(process.stdout.readline, "")
        assert "answered 503" in next(line for line in lines if " lost: " in line)
        assert " requests/s  " in next(line for line in lines if " lost: " not in line)
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()


def test_one_snapshot(peltier: Peltier, monkeypatch: pytest.MonkeyPatch) -> None:
    """--json is one document, --once one line."""
    monkeypatch.setattr(top, "_TIMEOUT_SECONDS", 60)
    document = json.loads(peltier("top", "--json", "--interval", "0.1").out)
    assert (document["state"], document["runner"]["state"]) == ("ready", "well")
    assert peltier("top", "--once", "--interval", "0.1").out.count("\n") == 1
