"""The schema of the registry's database: how it is created, migrated and checked."""

import asyncio
import secrets
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
from sqlalchemy import URL, Connection, event, insert, inspect

from peltier_store.registry.database import (
    BUSY_SECONDS,
    FAILURES,
    create_postgresql_engine,
    create_sqlite_engine,
    describe,
    is_sqlite,
    reason,
    require_whole,
)
from peltier_store.registry.errors import RegistryError, RegistryGone
from peltier_store.registry.tables import Base, ChangeRow, RevisionRow, TenantRow

MIGRATIONS = Path(__file__).parent / "migrations"

# An arbitrary number that no other lock of the database uses.
_SCHEMA_LOCK = 7_213_584_131
# Alembic keeps the context of a running migration in module globals.
_alembic = threading.Lock()
_NUM_REFERENCES = (
    "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND connamespace = current_schema()::regnamespace"
)


def upgrade(url: URL) -> None:
    """Creates a missing SQLite database and its directories, and migrates the schema to the newest revision.

    Blocks, and runs its own event loop. If it raises RegistryError, no table has changed.
    """
    config = Config(MIGRATIONS / "alembic.ini", attributes={"url": url})
    path = Path(url.database or "") if is_sqlite(url) else None
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


def lock_schema(connection: Connection) -> None:
    """Waits until no other process migrates the database. On SQLite the transaction has already waited."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})")


def is_empty(connection: Connection) -> bool:
    """Whether the database has no tables yet. Alembic may have made its own."""
    return set(inspect(connection).get_table_names()) <= {"alembic_version"} and not _revisions(connection)


def create_tables(connection: Connection) -> None:
    """Creates every table, and what each registry begins with: its identity, and the tenant `default`."""
    Base.metadata.create_all(connection)
    connection.execute(insert(RevisionRow).values(id=1, number=1, registry_id=secrets.token_hex(16)))
    connection.execute(insert(ChangeRow).values(number=1, id=secrets.token_hex(8)))
    connection.execute(insert(TenantRow).values(name="default", created_at=datetime.now(UTC), revision=1, weight=1.0))


def refuse_unknown_schema(connection: Connection, scripts: ScriptDirectory) -> None:
    """Raises RegistryError if these migrations cannot migrate the database."""
    name = describe(connection.engine.url)
    revisions = _revisions(connection)
    unknown = revisions - {script.revision for script in scripts.walk_revisions()}
    if unknown:
        raise RegistryError(
            f"the registry {name} has the schema revision {min(unknown)!r}, which this version of Peltier does not "
            "know: use the version that wrote it, or another registry"
        )
    tables = inspect(connection).get_table_names()
    if tables and not revisions and tables != ["alembic_version"]:
        raise RegistryError(f"the database {name} is not a Peltier registry: it holds a table {min(tables)!r}")


def refuse_older_schema(connection: Connection) -> None:
    """Raises RegistryError unless the schema has the newest revision."""
    scripts = ScriptDirectory(str(MIGRATIONS))
    refuse_unknown_schema(connection, scripts)
    if is_empty(connection):
        raise RegistryError(
            f"the registry {describe(connection.engine.url)} is empty: start a server, or `peltier store migrate`, to "
            "create it"
        )
    if _revisions(connection) != set(scripts.get_heads()):
        raise RegistryError(
            f"the registry {describe(connection.engine.url)} was written by an older version of Peltier; "
            "use that version, or start a server of this version, which upgrades the registry"
        )


def _revisions(connection: Connection) -> set[str]:
    return set(MigrationContext.configure(connection).get_current_heads())


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


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_BUSY


@stamina.retry(on=_is_busy, attempts=None, timeout=BUSY_SECONDS, wait_initial=0.01, wait_max=0.1)
def _keep_write_ahead_log(path: Path) -> None:
    # The mode is stored in the file. When several processes open a new database, SQLite fails here without waiting.
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


def _allow_broken_references(connection: sqlite3.Connection, _record: object) -> None:
    # SQLite ignores this inside a transaction. The end of a migration checks the references.
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = OFF")
    cursor.close()
