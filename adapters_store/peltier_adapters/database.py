"""The registry's SQLite database: how connections to it behave, and how its schema comes up to date."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import stamina
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, event, inspect, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from peltier_adapters.durable import make_directory
from peltier_adapters.errors import AdapterError

MIGRATIONS = Path(__file__).parent / "migrations"
_BUSY_SECONDS = 30
# Alembic keeps the context of a running migration in module globals.
_alembic = threading.Lock()


class RegistryError(AdapterError):
    """The registry could not do what was asked of it."""


def database_url(text: str) -> URL:
    """Reads sqlite+aiosqlite:///PATH, making PATH absolute; raises RegistryError for anything else."""
    rule = f"the registry URL {text!r} is not of the form sqlite+aiosqlite:///PATH"
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise RegistryError(rule) from error
    # A database in memory would lose at exit what it had acknowledged.
    if url.drivername != "sqlite+aiosqlite" or url.database in (None, "", ":memory:") or url.host or url.query:
        raise RegistryError(rule)
    return url.set(database=str(Path(url.database or "").absolute()))


def create_engine(url: URL) -> AsyncEngine:
    """An engine whose transactions are durable once committed.

    One that will write must ask for it from its first statement: `engine.execution_options(begin="BEGIN IMMEDIATE")`.
    """
    engine = create_async_engine(url, connect_args={"timeout": _BUSY_SECONDS})
    event.listen(engine.sync_engine, "connect", _configure)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def upgrade(url: URL) -> None:
    """Makes the database and its directories where they are missing, and brings the schema to the newest revision.

    Blocks, and runs an event loop of its own. Raises RegistryError, and then has changed no table.
    """
    path = Path(url.database or "")
    config = Config(MIGRATIONS / "alembic.ini", attributes={"url": url})
    try:
        make_directory(path.parent)
        # A file that cannot be opened fails here: in Alembic's event loop, aiosqlite's thread would outlive the loop.
        sqlite3.connect(path).close()
        with _alembic:
            command.upgrade(config, "head")
        # Last, so that a database that is refused stays as it was.
        _keep_write_ahead_log(path)
    except (OSError, ValueError, DBAPIError, sqlite3.Error) as error:
        raise RegistryError(f"the registry {str(path)!r} cannot be opened: {reason(error)}") from error


def refuse_unknown_schema(connection: Connection, scripts: ScriptDirectory) -> None:
    """Raises RegistryError where the database is not one that these migrations know how to bring up to date."""
    path = connection.engine.url.database
    heads = MigrationContext.configure(connection).get_current_heads()
    unknown = set(heads) - {script.revision for script in scripts.walk_revisions()}
    if unknown:
        raise RegistryError(
            f"the registry {path!r} was written by a newer Peltier, "
            f"since this one does not know its schema revision {min(unknown)!r}"
        )
    tables = inspect(connection).get_table_names()
    if tables and not heads and tables != ["alembic_version"]:
        raise RegistryError(f"the SQLite database {path!r} is not a Peltier registry: it holds a table {tables[0]!r}")


def reason(error: Exception) -> str:
    """What the operating system or the database says of it, without the statement."""
    return str(error.orig if isinstance(error, DBAPIError) else error)


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_BUSY


@stamina.retry(on=_is_busy, attempts=None, timeout=_BUSY_SECONDS, wait_initial=0.01, wait_max=0.1)
def _keep_write_ahead_log(path: Path) -> None:
    # The mode stays with the file. While processes open a new database together, SQLite fails here without waiting.
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    # The driver would otherwise begin transactions when it sees fit, which is after the first read.
    connection.isolation_level = None
    cursor = connection.cursor()
    # NORMAL may lose the last commits to a power loss, and a commit here acknowledges an upload. EXTRA is FULL that
    # keeps this promise also where there is no write-ahead log yet, which is while the first migration runs.
    cursor.execute("PRAGMA synchronous = EXTRA")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin(connection: Connection) -> None:
    # A transaction that reads first and writes later fails at once if another has written in between; one that begins
    # IMMEDIATE waits for its turn instead.
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))
