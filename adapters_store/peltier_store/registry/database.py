"""The registry's database: how connections to it behave, and how its schema comes up to date."""

import re
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import stamina
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from peltier_adapters.durable import make_directory
from sqlalchemy import URL, Connection, event, inspect, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from peltier_store.registry.database_file import require_whole
from peltier_store.registry.errors import RegistryError

MIGRATIONS = Path(__file__).parent / "migrations"
# What a database, its driver and the way to it may fail with.
FAILURES = (SQLAlchemyError, OSError)
# What SQLite's driver says of half a character, and of a number of more than 64 bits.
BAD_VALUES = (UnicodeEncodeError, OverflowError)

_BUSY_SECONDS = 30
_CONNECT_SECONDS = 10
_GONE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# Longer than any statement here takes; without it a database that has vanished would be waited for without end.
_STATEMENT_SECONDS = 30
# Shorter than that: a writer that hangs or has vanished keeps the others waiting, and they shall not give up before it.
_IDLE_SECONDS = 15.0
_SQLITE, _POSTGRESQL = "sqlite+aiosqlite", "postgresql+asyncpg"
# The two parts of a connection that have no place of their own in a URL.
_POSTGRESQL_OPTIONS = frozenset({"ssl", "host"})
# Any number that nothing else in the database locks by.
_SCHEMA_LOCK = 7_213_584_131
# Alembic keeps the context of a running migration in module globals.
_alembic = threading.Lock()


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
    # A database in memory would lose at exit what it had acknowledged.
    if url.drivername != _SQLITE or url.database in (None, "", ":memory:") or url.host or url.query:
        raise RegistryError(rule)
    return url.set(database=str(Path(url.database or "").absolute()))


def describe(url: URL) -> str:
    """How sentences name the database: its file, or its address without user and password."""
    if url.drivername == _SQLITE:
        return repr(url.database)
    return repr(url.set(username=None, password=None, query={}).render_as_string())


def create_engine(url: URL, *, durable: bool = True) -> AsyncEngine:
    """An engine whose transactions are durable once committed; without `durable` a power loss may take the last ones.

    One that will write must ask for it from its first statement: `engine.execution_options(begin="BEGIN IMMEDIATE")`.
    PostgreSQL knows no such thing and takes no notice; there a row's lock does it.
    """
    if url.drivername == _POSTGRESQL:
        try:
            return create_async_engine(url, pool_pre_ping=True, connect_args=_postgresql_arguments(durable))
        except ModuleNotFoundError as error:
            raise RegistryError("a registry in PostgreSQL needs asyncpg: pip install 'peltier[postgres]'") from error
    engine = create_async_engine(url, connect_args={"timeout": _BUSY_SECONDS})
    event.listen(engine.sync_engine, "connect", _configure_durable if durable else _configure_hasty)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def create_migrating_engine(url: URL) -> AsyncEngine:
    """An engine for migrations, which in SQLite replace tables that others refer to."""
    engine = create_engine(url)
    if url.drivername == _SQLITE:
        event.listen(engine.sync_engine, "connect", _allow_broken_references)
    return engine.execution_options(begin="BEGIN IMMEDIATE")


def upgrade(url: URL) -> None:
    """Makes a SQLite database and its directories where they are missing, and brings the schema to the newest revision.

    Blocks, and runs an event loop of its own. Raises RegistryError, and then has changed no table.
    """
    config = Config(MIGRATIONS / "alembic.ini", attributes={"url": url})
    path = Path(url.database or "") if url.drivername == _SQLITE else None
    try:
        if path is not None:
            make_directory(path.parent)
            require_whole(path)
            # A file that cannot be opened fails here: in Alembic's event loop, aiosqlite's thread would outlive it.
            sqlite3.connect(path).close()
        with _alembic:
            command.upgrade(config, "head")
        if path is not None:
            # Last, so that a database that is refused stays as it was.
            _keep_write_ahead_log(path)
    except (*FAILURES, ValueError, sqlite3.Error) as error:
        raise RegistryError(f"the registry {describe(url)} cannot be opened: {reason(error)}") from error


def lock_schema(connection: Connection) -> None:
    """Waits until no other process migrates the database. SQLite's transaction has waited already."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})")


def refuse_unknown_schema(connection: Connection, scripts: ScriptDirectory) -> None:
    """Raises RegistryError where the database is not one that these migrations know how to bring up to date."""
    name = describe(connection.engine.url)
    heads = MigrationContext.configure(connection).get_current_heads()
    unknown = set(heads) - {script.revision for script in scripts.walk_revisions()}
    if unknown:
        raise RegistryError(
            f"the registry {name} was written by a newer Peltier, "
            f"since this one does not know its schema revision {min(unknown)!r}"
        )
    tables = inspect(connection).get_table_names()
    if tables and not heads and tables != ["alembic_version"]:
        raise RegistryError(f"the database {name} is not a Peltier registry: it holds a table {min(tables)!r}")


def refuse_older_schema(connection: Connection) -> None:
    """Raises RegistryError unless the schema is the newest that these migrations know."""
    scripts = ScriptDirectory(str(MIGRATIONS))
    refuse_unknown_schema(connection, scripts)
    if set(MigrationContext.configure(connection).get_current_heads()) != set(scripts.get_heads()):
        raise RegistryError(
            f"the registry {describe(connection.engine.url)} was written by an older Peltier; use that one here, "
            "or start a server of this one first, which upgrades it"
        )


def refuse_broken_references(connection: Connection) -> None:
    """Raises RegistryError where a row refers to one that a migration has lost."""
    if connection.dialect.name == "sqlite":
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
        if broken is not None:
            raise RegistryError(f"the registry {describe(connection.engine.url)} is damaged: table {broken[0]!r}")


def reason(error: Exception) -> str:
    """What the operating system or the database says of it, in one line, without the statement."""
    said = str(error.orig if isinstance(error, DBAPIError) else error)
    # The driver's adapter puts the class of the error before what the server said.
    return re.sub(r"^<class '[^']*'>: ", "", said).partition("\n")[0] or "it does not answer in time"


def is_full(error: Exception) -> bool:
    """The database has no room to write; PostgreSQL says so by SQLSTATE 53100."""
    if not isinstance(error, DBAPIError):
        return False
    if getattr(error.orig, "sqlstate", None) == "53100":
        return True
    return getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def is_gone(error: Exception) -> bool:
    """The database is missing or damaged, or has no tables: SQLSTATE 3D000 and 42P01, and SQLite's own codes."""
    if not isinstance(error, DBAPIError):
        return False
    if getattr(error.orig, "sqlstate", None) in ("3D000", "42P01"):
        return True
    code = getattr(error.orig, "sqlite_errorcode", None)
    # An error of the second kind has one byte of code and one that says more of it.
    return (code is not None and code & 0xFF in _GONE) or "no such table" in str(error.orig)


def refuses_a_value(error: Exception) -> bool:
    """Whether PostgreSQL or its driver says that a text or number of the caller's cannot be (SQLSTATE class 22)."""
    return str(getattr(getattr(error, "orig", None), "sqlstate", "")).startswith("22")


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_BUSY


@stamina.retry(on=_is_busy, attempts=None, timeout=_BUSY_SECONDS, wait_initial=0.01, wait_max=0.1)
def _keep_write_ahead_log(path: Path) -> None:
    # The mode stays with the file. While processes open a new database together, SQLite fails here without waiting.
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


def _postgresql_arguments(durable: bool) -> dict[str, object]:
    return {
        "timeout": _CONNECT_SECONDS,
        "command_timeout": _STATEMENT_SECONDS,
        "server_settings": {
            "idle_in_transaction_session_timeout": f"{_IDLE_SECONDS * 1000:.0f}",
            # A server may be set to acknowledge sooner, and a commit here acknowledges an upload.
            "synchronous_commit": "on" if durable else "off",
        },
    }


def _configure_durable(connection: sqlite3.Connection, _record: object) -> None:
    # NORMAL may lose the last commits to a power loss, and a commit here acknowledges an upload. EXTRA is FULL that
    # keeps this promise also where there is no write-ahead log yet, which is while the first migration runs.
    _configure(connection, "EXTRA")


def _configure_hasty(connection: sqlite3.Connection, _record: object) -> None:
    _configure(connection, "NORMAL")


def _configure(connection: sqlite3.Connection, synchronous: str) -> None:
    # The driver would otherwise begin transactions when it sees fit, which is after the first read.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA synchronous = {synchronous}")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _allow_broken_references(connection: sqlite3.Connection, _record: object) -> None:
    # SQLite takes notice of this outside of transactions only. What a migration leaves is checked at its end.
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = OFF")
    cursor.close()


def _begin(connection: Connection) -> None:
    # A transaction that reads first and writes later fails at once if another has written in between; one that begins
    # IMMEDIATE waits for its turn instead.
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))
