"""Checks that the file of a SQLite registry is still the file that connections have open."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from peltier_adapters.durable import Identity, identity_of
from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError

from peltier_store.registry.errors import RegistryError, RegistryGone

_OPENED = "opened file"
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100


def require_whole(path: Path) -> None:
    """Raises RegistryError if the file was cut short; SQLite would read zeros, or create a new database.

    A missing or empty file is a new database. A write-ahead log may contain the missing part of a file.
    """
    size_bytes = _size_of(path)
    if size_bytes == 0:
        return
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    has_log = _size_of(path.with_name(f"{path.name}-wal")) > 0
    needed_bytes = _size_in(header)
    if size_bytes < needed_bytes and not has_log:
        raise RegistryError(
            f"the registry {str(path)!r} was cut short: it has {size_bytes} bytes instead of at least {needed_bytes}; "
            "restore it from a backup"
        )


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _size_in(header: bytes) -> int:
    """The size of the file according to its header; 0 for another format, which SQLite itself reports."""
    if len(header) < _HEADER_BYTES:
        return _HEADER_BYTES
    if not header.startswith(_MAGIC):
        return 0
    page_bytes = int.from_bytes(header[16:18], "big")
    return (65_536 if page_bytes == 1 else page_bytes) * int.from_bytes(header[28:32], "big")


class DatabaseFile:
    """The file at `path`. Its engines never create it, and use a connection only while `path` names its file.

    SQLite itself would create a missing file, and would acknowledge writes to a file that was deleted or moved away.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: tuple[Identity | None, str] | None = None
        self._size_bytes = 0
        self._lock = threading.Lock()

    def follow(self, engine: Engine) -> None:
        """Checks every connection of the engine when it is opened and before it is used."""
        event.listen(engine, "do_connect", self._open)
        event.listen(engine, "connect", self._note)
        event.listen(engine, "checkout", self._require)

    def pin(self, registry_id: str) -> None:
        """Declares that the current file holds this registry; another file is used only if it holds the same one."""
        self._known = identity_of(self.path), registry_id

    def is_open_in(self, info: dict[Any, Any]) -> bool:
        """Whether `path` names the file that the connection with this `info` has open."""
        opened: Identity | None = info.get(_OPENED)
        return opened is not None and opened == identity_of(self.path)

    def _open(self, _dialect: object, _entry: object, arguments: list[Any], options: dict[str, Any]) -> None:
        self._require_same()
        arguments[0], options["uri"] = f"{self.path.as_uri()}?mode=rw", True

    def _note(self, _connection: object, entry: Any) -> None:
        entry.info[_OPENED] = identity_of(self.path)

    def _require(self, connection: Any, entry: Any, _proxy: object) -> None:
        if not self.is_open_in(entry.info):
            raise DisconnectionError("the database's file was replaced")
        # Threads take connections at the same time, and must not see a size that another one has seen grow.
        with self._lock:
            size_bytes = _size_of(self.path)
            if size_bytes < self._size_bytes:
                self._require_undamaged(connection)
            self._size_bytes = size_bytes

    def _require_undamaged(self, connection: Any) -> None:
        """Raises RegistryGone unless SQLite finds the smaller file undamaged, as it is after a vacuum."""
        cursor = connection.cursor()
        try:
            cursor.execute("PRAGMA quick_check(1)")
            found = cursor.fetchone()[0]
        except sqlite3.Error as error:
            found = str(error)
        finally:
            cursor.close()
        if found != "ok":
            reason = found.partition("\n")[0]
            raise RegistryGone(f"the registry {str(self.path)!r} was cut short and is damaged: {reason}")

    def _require_same(self) -> None:
        if self._known is None or self._known[0] == identity_of(self.path):
            return
        # Immutable, because an ordinary connection would create files beside a foreign database, or beside one that is
        # being copied to this place.
        try:
            with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
                found = connection.execute("SELECT registry_id FROM revision").fetchone()
        except sqlite3.Error as error:
            raise RegistryGone(f"the registry {str(self.path)!r} is missing or damaged: {error}") from error
        if found is None or found[0] != self._known[1]:
            raise RegistryGone(
                f"the registry {str(self.path)!r} was replaced by another one: it is not {self._known[1]}"
            )
        self._known = identity_of(self.path), self._known[1]
