"""Databases of a registry that crash, and that are restored from a copy."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Literal, Protocol

from sqlalchemy import Connection, Engine, event

from tests.support.postgres_server import PostgresServer

Restore = Literal["while nobody has it open", "while others have it open"]


class CrashingDatabase(Protocol):
    """A database at `url` that others have open."""

    url: str

    def interrupt(self) -> None:
        """Breaks the transaction that is being written, before its commit."""

    def crash(self) -> None:
        """Takes back what is not durable, and breaks every connection that the database has."""

    def save(self) -> None:
        """Makes the copy that `restore` puts back."""

    def restore(self, how: Restore) -> None:
        """Puts the last copy back."""

    def close(self) -> None:
        """Ends."""


class SqliteFile:
    """A file. Whoever commits says by `PRAGMA synchronous` whether a power loss may take that back."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite+aiosqlite:///{path}"
        self._path = path
        self._durable = self._copy = self._read()
        self._has_relaxed = False
        event.listen(Engine, "commit", self._note)

    def interrupt(self) -> None:
        raise OSError("the power is off")

    def crash(self) -> None:
        if self._has_relaxed:
            self._replace(self._durable)

    def save(self) -> None:
        self._copy = self._read()

    def restore(self, how: Restore) -> None:
        if how == "while nobody has it open":
            self._replace(self._copy)
            return
        path = self._path.with_suffix(".copy")
        path.write_bytes(self._copy)
        with closing(sqlite3.connect(path)) as copy, closing(sqlite3.connect(self._path)) as database:
            copy.backup(database)
        self._durable, self._has_relaxed = self._copy, False

    def close(self) -> None:
        event.remove(Engine, "commit", self._note)

    def _note(self, connection: Connection) -> None:
        """Before a commit: a durable one makes those before it durable too."""
        if connection.dialect.name != "sqlite":
            return
        is_durable = connection.connection.dbapi_connection.execute("PRAGMA synchronous").fetchone()[0] > 1
        if is_durable:
            self._has_relaxed = False
        elif not self._has_relaxed:
            self._durable, self._has_relaxed = self._read(), True

    def _read(self) -> bytes:
        with closing(sqlite3.connect(self._path)) as database:
            return database.serialize()

    def _replace(self, contents: bytes) -> None:
        for path in self._path.parent.glob(f"{self._path.name}-*"):
            path.unlink()
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(contents)
        fresh.rename(self._path)
        self._durable, self._has_relaxed = contents, False


class PostgresDatabase:
    """A database of a real server, which is stopped without a checkpoint."""

    def __init__(self, server: PostgresServer, template: str) -> None:
        self._name = server.create_database(template)
        self._copy = template
        self._server = server
        self.url = server.url(self._name)

    def interrupt(self) -> None:
        self.crash()

    def crash(self) -> None:
        self._server.stop()
        self._server.start()

    def save(self) -> None:
        self._server.stop()
        self._server.save("copy")
        self._server.start()
        self._copy = self._server.create_database(self._name)

    def restore(self, how: Restore) -> None:
        if how == "while others have it open":
            self._server.execute("postgres", f"DROP DATABASE {self._name} WITH (FORCE)")
            self._server.execute("postgres", f"CREATE DATABASE {self._name} TEMPLATE {self._copy}")
            return
        self._server.stop()
        self._server.restore("copy")
        self._server.start()
        # It was made after the copy of the files.
        self._copy = self._server.create_database(self._name)

    def close(self) -> None:
        """The server ends with the tests."""
