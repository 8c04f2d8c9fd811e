"""Connections to the registry's database, and migrations of its schema."""

import re
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from peltier_store.registry.errors import RegistryError

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
