"""A PostgreSQL server on loopback for one test run, which can be stopped and started again.

It runs as the user `postgres` where the tests run as root, because it refuses to be root's.
"""

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common.ports import ReservedPort

if TYPE_CHECKING:
    from asyncpg import Connection

_START_SECONDS = 60
# Each costs time, and what a test writes need not survive the machine.
_FAST = ("fsync=off", "full_page_writes=off", "shared_buffers=32MB")


class PostgresServer:
    """One server with its own directory; `url` names a database of it for the registry."""

    def __init__(self, programs: Path, directory: Path, user: str | None) -> None:
        self._port = ReservedPort()
        self.port = self._port.number
        self._programs = programs
        self._directory = directory
        self._identity: dict[str, Any] = {"user": user, "group": user, "cwd": directory}
        self._process: subprocess.Popen[bytes] | None = None
        self._names = (f"test_{number}" for number in itertools.count())
        # A connection to each database that statements were run in. Their event loop has a thread of its own, because
        # the caller may be in another one.
        self._connections: dict[str, Connection] = {}
        self._runner, self._thread = asyncio.Runner(), ThreadPoolExecutor(1, thread_name_prefix="postgres")

    def url(self, database: str) -> str:
        """The registry URL of a database."""
        return f"postgresql+asyncpg://postgres@127.0.0.1:{self.port}/{database}"

    def create_database(self, template: str = "template0") -> str:
        """Makes a database like `template`, to which nobody else is connected, and returns its name."""
        name = next(self._names)
        self._thread.submit(self._disconnect, template).result()
        self.execute("postgres", f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def execute(self, database: str, statement: str) -> None:
        """Runs one statement of SQL in a database, on a connection that stays open."""
        self._thread.submit(self._execute, database, statement).result()

    def start(self) -> None:
        """Returns once it answers."""
        settings = (f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self._directory}")
        options = [part for setting in (*settings, *_FAST) for part in ("-c", setting)]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._directory / "data", *options],
                stdout=log,
                stderr=log,
                **self._identity,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, (self._directory / "log").read_text()
            assert time.monotonic() < deadline, "PostgreSQL does not answer"
            time.sleep(0.05)

    def stop(self) -> None:
        """Breaks every connection and ends, as a crash does. Nobody else gets the port."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            self._process = None
        self._thread.submit(self._disconnect, *self._connections).result()

    def save(self, copy: str) -> None:
        """Copies the data of the stopped server, with all of its databases."""
        self._copy("data", copy)

    def restore(self, copy: str) -> None:
        """Puts a copy that `save` has made in the place of the stopped server's data."""
        self._copy(copy, "data")

    def close(self) -> None:
        """Ends for good."""
        self.stop()
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()
        self._port.close()

    def _execute(self, database: str, statement: str) -> None:
        from asyncpg import connect  # 0.1 s, which few callers of this file need

        if database not in self._connections:
            connecting = connect(host="127.0.0.1", port=self.port, user="postgres", database=database)
            self._connections[database] = self._runner.run(connecting)
        self._runner.run(self._connections[database].execute(statement))

    def _copy(self, source: str, target: str) -> None:
        shutil.rmtree(self._directory / target, ignore_errors=True)
        # Not by Python, which would not keep the owner.
        subprocess.run(["/bin/cp", "-a", self._directory / source, self._directory / target], check=True)

    def _disconnect(self, *databases: str) -> None:
        for connection in [self._connections.pop(name) for name in databases if name in self._connections]:
            connection.terminate()

    def _answers(self) -> bool:
        command = [self._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command).returncode == 0

    def run(self, program: str, *arguments: str) -> None:
        """Runs one of PostgreSQL's programs as the server's user."""
        command = [self._programs / program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, **self._identity)
        assert done.returncode == 0, done.stderr


@contextmanager
def run_postgres() -> Iterator[PostgresServer]:
    """A started server; it and its databases are deleted afterwards."""
    programs = _find_programs()
    user = "postgres" if os.geteuid() == 0 else None
    # Not one of pytest's directories, which other users cannot enter.
    with tempfile.TemporaryDirectory(prefix="peltier-postgres-") as name:
        directory = Path(name)
        if user is not None:
            shutil.chown(directory, user)
        server = PostgresServer(programs, directory, user)
        server.run("initdb", "-D", str(directory / "data"), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync")
        try:
            server.start()
            yield server
        finally:
            server.close()


def _find_programs() -> Path:
    # Debian keeps the programs of each version in a folder of its own, outside of the path.
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [Path(shutil.which("initdb") or "")]
    if not found[-1].is_file():
        raise RuntimeError("PostgreSQL is not installed: apt-get install postgresql")
    return found[-1].parent
