"""Connections to the registry's database, which run transactions, and the file of a SQLite registry."""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from peltier_adapters.durable import identity_of
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.util import await_

from peltier_store.registry.errors import RegistryError

T = TypeVar("T")

# Errors of the database, its driver and the network.
FAILURES = (SQLAlchemyError, OSError)
# SQLite's driver raises these for a lone surrogate and for an integer of more than 64 bits.
BAD_VALUES = (UnicodeEncodeError, OverflowError)

BUSY_SECONDS = 30
_CONNECT_SECONDS = 10
_GONE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# Longer than any statement here takes. Without it, a call would wait forever for a database that has disappeared.
_STATEMENT_SECONDS = 30
# Shorter than that: a writer that hangs or has disappeared blocks the others, which must not time out before it.
_IDLE_SECONDS = 15.0
_SQLITE, _POSTGRESQL = "sqlite+aiosqlite", "postgresql+asyncpg"
# Connection options that are given in the query of the URL.
_POSTGRESQL_OPTIONS = frozenset({"ssl", "host"})
# One thread writes, and the others read. Fewer than the connections that an engine may open.
_NUM_THREADS = 8
_OPENED = "opened file"
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100


def database_url(text: str) -> URL:
    """Reads sqlite+aiosqlite:///PATH, making PATH absolute, or postgresql+asyncpg://USER:PASSWORD@HOST/DATABASE.

    Raises RegistryError for anything else; the sentence shows no password.
    """
    shown = re.sub(r"//.*@", "//***@", text).partition("?")[0]
    rule = f"the registry URL {shown!r} is not of the form {_SQLITE}:///PATH or {_POSTGRESQL}://USER:PASSWORD@HOST/DATABASE"
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise RegistryError(rule) from error
    if url.drivername == _POSTGRESQL and url.database and set(url.query) <= _POSTGRESQL_OPTIONS:
        return url
    # A database in memory would lose acknowledged changes at exit.
    if url.drivername != _SQLITE or url.database in (None, "", ":memory:") or url.host or url.query:
        raise RegistryError(rule)
    return url.set(database=str(Path(url.database or "").absolute()))


def describe(url: URL) -> str:
    """The database's name in messages: its file, or its address without user and password."""
    if url.drivername == _SQLITE:
        return repr(url.database)
    return repr(url.set(username=None, password=None, query={}).render_as_string())


def is_sqlite(url: URL) -> bool:
    return url.drivername == _SQLITE


def create_sqlite_engine(url: URL) -> Engine:
    """An engine whose commits are durable before anybody else can read them.

    A writer must lock SQLite from its first statement: `engine.execution_options(begin="BEGIN IMMEDIATE")`.
    """
    # Python's own driver. The asynchronous one would hand every statement to a thread.
    engine = create_engine(url.set(drivername="sqlite"), connect_args={"timeout": BUSY_SECONDS})
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def create_postgresql_engine(url: URL) -> AsyncEngine:
    """The same for PostgreSQL, where the lock of a row serialises writers."""
    try:
        return create_async_engine(url, pool_pre_ping=True, connect_args=_postgresql_arguments())
    except ModuleNotFoundError as error:
        raise RegistryError("a registry in PostgreSQL needs asyncpg: pip install 'peltier[postgres]'") from error


def reason(error: Exception) -> str:
    """The message of the operating system or the database, in one line, without the statement."""
    said = str(error.orig if isinstance(error, DBAPIError) else error)
    # The driver's adapter puts the class of the error before the server's message.
    return re.sub(r"^<class '[^']*'>: ", "", said).partition("\n")[0] or "it does not answer in time"


def is_full(error: Exception) -> bool:
    """Whether the database's disk is full (SQLSTATE 53100 on PostgreSQL)."""
    if not isinstance(error, DBAPIError):
        return False
    if getattr(error.orig, "sqlstate", None) == "53100":
        return True
    return getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def is_gone(error: Exception) -> bool:
    """Whether the database is missing or damaged, or has no tables (SQLSTATE 3D000 and 42P01 on PostgreSQL)."""
    if not isinstance(error, DBAPIError):
        return False
    if getattr(error.orig, "sqlstate", None) in ("3D000", "42P01"):
        return True
    code = getattr(error.orig, "sqlite_errorcode", None)
    # The low byte of SQLite's extended error code is the primary code.
    return (code is not None and code & 0xFF in _GONE) or "no such table" in str(error.orig)


def refuses_a_value(error: Exception) -> bool:
    """Whether PostgreSQL or its driver refuses a value of the caller (SQLSTATE class 22)."""
    return str(getattr(getattr(error, "orig", None), "sqlstate", "")).startswith("22")


def _postgresql_arguments() -> dict[str, object]:
    return {
        "timeout": _CONNECT_SECONDS,
        "command_timeout": _STATEMENT_SECONDS,
        "server_settings": {
            "idle_in_transaction_session_timeout": f"{_IDLE_SECONDS * 1000:.0f}",
            # A database may be configured to acknowledge sooner; a crash would then take back what others have read.
            "synchronous_commit": "on",
        },
    }


def read_own_clock() -> str:
    """SQLite's `clock_timestamp`: its processes share one machine, and so one clock."""
    return datetime.now(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    connection.create_function("clock_timestamp", 0, read_own_clock)
    # The driver would otherwise begin a transaction only after the first read.
    connection.isolation_level = None
    cursor = connection.cursor()
    # With NORMAL a power loss would take back the last commits, which others have read. EXTRA is as durable as FULL,
    # and also without a write-ahead log, which does not exist yet during the first migration.
    cursor.execute("PRAGMA synchronous = EXTRA")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin(connection: Connection) -> None:
    # A transaction that reads before it writes fails if another one has written in between. One that begins IMMEDIATE
    # waits for the other one instead.
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


class Access(Enum):
    """What a transaction may do."""

    READ = "read"
    WRITE = "write"


class SqliteEngines:
    """A whole transaction runs in one thread. To hand every statement to a thread takes five times as long."""

    def __init__(self, url: URL) -> None:
        engine = create_sqlite_engine(url)
        _follow_path(engine, Path(url.database or ""))
        self._engines: dict[Access, Engine] = {
            Access.READ: engine,
            Access.WRITE: engine.execution_options(begin="BEGIN IMMEDIATE"),
        }
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="registry")

    async def run(self, access: Access, work: Callable[[Connection], T]) -> T:
        """Calls `work` in a transaction; an exception in it undoes its changes."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, access, work)

    def _run(self, access: Access, work: Callable[[Connection], T]) -> T:
        with self._engines[access].begin() as connection:
            return work(connection)

    def wait(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the event loop while the work of a transaction waits for its result."""
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    async def close(self) -> None:
        self._engines[Access.WRITE].dispose()
        self._threads.shutdown(wait=False)


class PostgresqlEngines:
    """The driver is asynchronous, so the work runs on the event loop, which does other things while it waits."""

    def __init__(self, url: URL) -> None:
        engine = create_postgresql_engine(url)
        self._engines = {
            # All statements of a reader must see the same state, as they always do on SQLite.
            Access.READ: engine.execution_options(isolation_level="REPEATABLE READ"),
            Access.WRITE: engine,
        }

    async def run(self, access: Access, work: Callable[[Connection], T]) -> T:
        async with self._engines[access].begin() as connection:
            return await connection.run_sync(work)

    def wait(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
        return await_(work)

    async def close(self) -> None:
        await self._engines[Access.WRITE].dispose()


Engines: TypeAlias = SqliteEngines | PostgresqlEngines


def create_engines(url: URL) -> Engines:
    """The connections to one database."""
    return SqliteEngines(url) if is_sqlite(url) else PostgresqlEngines(url)


def _follow_path(engine: Engine, path: Path) -> None:
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
