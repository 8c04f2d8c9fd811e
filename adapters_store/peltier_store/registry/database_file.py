"""The file of a SQLite registry: it is whole when it is opened, and its connections follow its path."""

from pathlib import Path
from typing import Any

from peltier_adapters.durable import identity_of
from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError

from peltier_store.registry.errors import RegistryError

_OPENED = "opened file"
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100


def require_whole(path: Path) -> None:
    """Raises RegistryError if the file was cut short; SQLite would read zeros, or create a new database.

    A missing or empty file is a new database. A write-ahead log may contain the missing part of a file. The order of
    the reads matters: another process may move its log into the file meanwhile, which then only grows.
    """
    header = _header_of(path)
    if not header:
        return
    needed_bytes = _size_in(header)
    has_log = _size_of(path.with_name(f"{path.name}-wal")) > 0
    size_bytes = _size_of(path)
    if size_bytes < needed_bytes and not has_log:
        raise RegistryError(
            f"the registry {str(path)!r} was cut short: it has {size_bytes} bytes instead of at least {needed_bytes}; "
            "restore it from a backup"
        )


def follow_path(engine: Engine, path: Path) -> None:
    """Makes the engine use only connections to the file that is at `path`, and never create it.

    A connection stays with its file when that is deleted or moved, as one to PostgreSQL breaks when the server stops.
    """

    def open_existing(_dialect: object, entry: Any, arguments: list[Any], options: dict[str, Any]) -> None:
        entry.info[_OPENED] = identity_of(path)
        arguments[0], options["uri"] = f"{path.as_uri()}?mode=rw", True

    def require_current(_connection: object, entry: Any, _proxy: object) -> None:
        if entry.info[_OPENED] != identity_of(path):
            raise DisconnectionError("the database's file was moved or replaced")

    event.listen(engine, "do_connect", open_existing)
    event.listen(engine, "checkout", require_current)


def _header_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return b""


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
