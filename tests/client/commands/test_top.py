"""`peltier top`, on a terminal and without one."""

import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from fcntl import ioctl

import pytest
from peltier_client.commands import top

from tests.client.conftest import Answer, LittleServer
from tests.client.typed_commands import Outcome

# Ctrl-C reaches the processes whose terminal this is.
_IN_OWN_TERMINAL = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from peltier_client.cli import main
main()
"""
_TOP = ("top", "--interval", "0.1")
_END_SECONDS = 50
STREAMS = {"stdin": "r", "stdout": "w", "stderr": "w"}


class Terminal:
    """A pseudo-terminal of 80 columns and 24 lines."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.theirs)
        self.written = ""

    def wait_for(self, text: str) -> None:
        """Reads until the terminal has shown `text`."""
        while text not in self.written:
            ready, _, _ = select.select([self.ours], [], [], _END_SECONDS)
            assert ready, self.written
            self.written += os.read(self.ours, 65536).decode(errors="replace")

    def wait_until_restored(self) -> None:
        """Reads until it shows its first screen again."""
        self.wait_for("\x1b[?1049l")

    def type(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def check_restored(self) -> None:
        """It had one second screen, and has its former mode."""
        assert self.written.count("\x1b[?1049h") == 1
        assert termios.tcgetattr(self.theirs) == self.before
        assert "Traceback" not in self.written


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    os.close(terminal.ours)
    os.close(terminal.theirs)


def run_beside(peltier, act: Callable[[], object]) -> Outcome:
    """How `peltier top` ends while `act`, which must end it, runs in a thread; fails as `act` does."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as failure:
            failures.append(failure)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=run)
    try:
        try:
            thread.start()
            outcome = peltier(*_TOP)
        finally:
            thread.join()
    except KeyboardInterrupt:  # that of `act`, before the command runs or once it has ended
        if not failures:
            raise
    if failures:
        raise failures[0]
    return outcome


@pytest.fixture
def on_terminal(terminal: Terminal, peltier):
    """`on_terminal(act)` is `run_beside` with the terminal as standard streams."""

    def run(act: Callable[[], object]) -> Outcome:
        with ExitStack() as stack:
            streams = {name: os.fdopen(os.dup(terminal.theirs), mode) for name, mode in STREAMS.items()}
            for stream in streams.values():
                stack.enter_context(stream)
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.delenv("NO_COLOR", raising=False)
            for name, value in {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}.items():
                patch.setenv(name, value)
            for name, stream in streams.items():
                patch.setattr(sys, name, stream)
            return run_beside(peltier, act)

    return run


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of these tests is lost because it says so, and not because it is slow."""
    monkeypatch.setattr(top, "_TIMEOUT_SECONDS", 60)


def test_a_lost_server_is_named_and_q_ends_it(on_terminal, terminal, server):
    """The numbers stay; the terminal is as it was before."""

    def lose_the_server() -> None:
        terminal.wait_for("0 restarts")
        server.planned.extend(Answer(503, b"") for _ in range(4))
        terminal.wait_for("server lost; the numbers are of")
        terminal.type(b"q")
        terminal.wait_until_restored()

    assert on_terminal(lose_the_server).status == 0
    terminal.check_restored()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)], ids=["sigint", "sigterm"])
def test_signals_restore_the_terminal(on_terminal, terminal, number, status):
    """As q does."""

    def send() -> None:
        terminal.wait_for("0 restarts")
        os.kill(os.getpid(), number)
        terminal.wait_until_restored()

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        assert on_terminal(send).status == status
    finally:
        signal.signal(signal.SIGTERM, before)
    terminal.check_restored()


@pytest.mark.slow  # In the gate the signal does not come from a terminal.
def test_ctrl_c_of_a_terminal_ends_it(terminal: Terminal, server: LittleServer) -> None:
    """The key reaches the process whose terminal this is."""
    env = {**os.environ, "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "COLUMNS", "LINES"):
        env.pop(name, None)
    command = [sys.executable, "-c", _IN_OWN_TERMINAL, *_TOP, "--url", server.url]
    streams = dict.fromkeys(STREAMS, terminal.theirs)
    with subprocess.Popen(command, env=env, start_new_session=True, **streams) as process:
        try:
            terminal.wait_for("0 restarts")
            terminal.type(b"\x03")
            terminal.wait_until_restored()
            assert process.wait(_END_SECONDS) == 130
        finally:
            process.kill()
    terminal.check_restored()


def test_a_pipe_gets_lines(peltier, server: LittleServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One an interval, also while the server is lost; a reader that goes away ends it without a traceback."""
    ours, theirs = os.pipe()
    output = os.fdopen(theirs, "w")
    monkeypatch.setattr(sys, "stdout", output)

    def read() -> None:
        with os.fdopen(ours) as reader:
            assert " ready  " in reader.readline()
            server.planned.extend(Answer(503, b"") for _ in range(3))
            lines = iter(reader.readline, "")
            assert "answered 503" in next(line for line in lines if " lost: " in line)
            assert " requests/s  " in next(line for line in lines if " lost: " not in line)

    assert run_beside(peltier, read) == Outcome(1, "", "")
    with suppress(BrokenPipeError):
        output.close()


def test_one_snapshot(peltier) -> None:
    """--json is one document, --once one line."""
    document = json.loads(peltier(*_TOP, "--json").out)
    assert (document["state"], document["runner"]["restarts"]) == ("ready", 0)
    assert peltier(*_TOP, "--once").out.count("\n") == 1
