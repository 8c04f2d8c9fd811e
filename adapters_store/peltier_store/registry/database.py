"""Connections to the registry's database, and migrations of its schema."""

import asyncio
import re
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import stamina
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from peltier_adapters.durable import make_directory
from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from peltier_store.registry.database_file import require_whole
from peltier_store.registry.errors import RegistryError, RegistryGone
from peltier_store.registry.tables import Base

MIGRATIONS = Path(__file__).parent / "migrations"
# Errors of the database, its driver and the network.
FAILURES = (SQLAlchemyError, OSError)
# SQLite's driver raises these for a lone surrogate and for an integer of more than 64 bits.
BAD_VALUES = (UnicodeEncodeError, OverflowError)

_BUSY_SECONDS = 30
_CONNECT_SECONDS = 10
_GONE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# Longer than any statement here takes. Without it, a call would wait forever for a database that has disappeared.
_STATEMENT_SECONDS = 30
# Shorter than that: a writer that hangs or has disappeared blocks the others, which must not time out before it.
_IDLE_SECONDS = 15.0
_SQLITE, _POSTGRESQL = "sqlite+aiosqlite", "postgresql+asyncpg"
# Connection options that are given in the query of the URL.
_POSTGRESQL_OPTIONS = frozenset({"ssl", "host"})
# An arbitrary number that no other lock of the database uses.
_SCHEMA_LOCK = 7_213_584_131
# Alembic keeps the context of a running migration in module globals.
_alembic = threading.Lock()
_NUM_REFERENCES = (
    "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND connamespace = current_schema()::regnamespace"
)


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
    engine = create_engine(url.set(drivername="sqlite"), connect_args={"timeout": _BUSY_SECONDS})
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def create_postgresql_engine(url: URL) -> AsyncEngine:
    """The same for PostgreSQL, where the lock of a row serialises writers."""
    try:
        return create_async_engine(url, pool_pre_ping=True, connect_args=_postgresql_arguments())
    except ModuleNotFoundError as error:
        raise RegistryError("a registry in PostgreSQL needs asyncpg: pip install 'peltier[postgres]'") from error


def migrate(url: URL, run: Callable[[Connection], None]) -> None:
    """Calls `run` in one transaction for migrations; on SQLite they replace tables that other tables refer to."""
    if not is_sqlite(url):
        asyncio.run(_migrate_postgresql(url, run))
        return
    engine = create_sqlite_engine(url)
    event.listen(engine, "connect", _allow_broken_references)
    try:
        with engine.execution_options(begin="BEGIN IMMEDIATE").begin() as connection:
            run(connection)
    finally:
        engine.dispose()


async def _migrate_postgresql(url: URL, run: Callable[[Connection], None]) -> None:
    engine = create_postgresql_engine(url)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(run)
    finally:
        await engine.dispose()


def upgrade(url: URL) -> None:
    """Creates a missing SQLite database and its directories, and migrates the schema to the newest revision.

    Blocks, and runs its own event loop. If it raises RegistryError, no table has changed.
    """
    config = Config(MIGRATIONS / "alembic.ini", attributes={"url": url})
    path = Path(url.database or "") if url.drivername == _SQLITE else None
    try:
        if path is not None:
            make_directory(path.parent)
            require_whole(path)
        with _alembic:
            command.upgrade(config, "head")
        if path is not None:
            # Last, so that a refused database stays unchanged.
            _keep_write_ahead_log(path)
    except (*FAILURES, ValueError, sqlite3.Error) as error:
        raise RegistryError(f"the registry {describe(url)} cannot be opened: {reason(error)}") from error


def lock_schema(connection: Connection) -> None:
    """Waits until no other process migrates the database. On SQLite the transaction has already waited."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})")


def refuse_unknown_schema(connection: Connection, scripts: ScriptDirectory) -> None:
    """Raises RegistryError if these migrations cannot migrate the database."""
    name = describe(connection.engine.url)
    heads = MigrationContext.configure(connection).get_current_heads()
    unknown = set(heads) - {script.revision for script in scripts.walk_revisions()}
    if unknown:
        raise RegistryError(
            f"the registry {name} was written by a newer version of Peltier: "
            f"this version does not know the schema revision {min(unknown)!r}"
        )
    tables = inspect(connection).get_table_names()
    if tables and not heads and tables != ["alembic_version"]:
        raise RegistryError(f"the database {name} is not a Peltier registry: it holds a table {min(tables)!r}")


def refuse_older_schema(connection: Connection) -> None:
    """Raises RegistryError unless the schema has the newest revision."""
    scripts = ScriptDirectory(str(MIGRATIONS))
    refuse_unknown_schema(connection, scripts)
    if set(MigrationContext.configure(connection).get_current_heads()) != set(scripts.get_heads()):
        raise RegistryError(
            f"the registry {describe(connection.engine.url)} was written by an older version of Peltier; "
            "use that version, or start a server of this version, which upgrades the registry"
        )


def read_schema(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def refuse_broken_references(connection: Connection) -> None:
    """Raises RegistryError if a row refers to a row that a migration has lost."""
    if connection.dialect.name == "sqlite":
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
        if broken is not None:
            raise RegistryError(f"the registry {describe(connection.engine.url)} is damaged: table {broken[0]!r}")


def refuse_unfinished_restore(connection: Connection) -> None:
    """Raises RegistryGone while PostgreSQL loads a dump outside of one transaction: it adds foreign keys at the end."""
    if connection.dialect.name == "postgresql":
        needed = sum(len(table.foreign_key_constraints) for table in Base.metadata.tables.values())
        if connection.exec_driver_sql(_NUM_REFERENCES).scalar_one() < needed:
            raise RegistryGone(f"the registry {describe(connection.engine.url)} is being restored")


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


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_BUSY


@stamina.retry(on=_is_busy, attempts=None, timeout=_BUSY_SECONDS, wait_initial=0.01, wait_max=0.1)
def _keep_write_ahead_log(path: Path) -> None:
    # The mode is stored in the file. When several processes open a new database, SQLite fails here without waiting.
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


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


def _allow_broken_references(connection: sqlite3.Connection, _record: object) -> None:
    # SQLite ignores this inside a transaction. The end of a migration checks the references.
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = OFF")
    cursor.close()


def _begin(connection: Connection) -> None:
    # A transaction that reads before it writes fails if another one has written in between. One that begins IMMEDIATE
    # waits for the other one instead.
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))
