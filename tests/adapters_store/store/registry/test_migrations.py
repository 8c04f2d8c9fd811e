"""A new database has the tables that the code expects, and a database of another schema is refused as it is."""

import asyncio
from hashlib import sha256
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from peltier_client.protocol.administration import TenantQuotas
from peltier_store.registry.database import database_url
from peltier_store.registry.errors import RegistryError
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.records import RegistrySnapshot
from peltier_store.registry.schema import MIGRATIONS
from peltier_store.registry.tables import Base
from peltier_store.registry.transactions import Transactions
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.schema import CreateIndex, CreateTable

from tests.support.postgres_server import PostgresServer

# The newest revision, and the digest of its tables. Whoever changes a table changes both.
SCHEMA = ("0018", "57032be83615bd7f")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'registry.db'}"
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return postgres.url(postgres.create_database())


@pytest.fixture
def config(url: str) -> Config:
    """Alembic's configuration for it."""
    config = Config(MIGRATIONS / "alembic.ini")
    config.set_main_option("sqlalchemy.url", url)
    return config


def test_a_new_database_has_the_tables_that_the_code_expects(config: Config) -> None:
    """Alembic finds nothing to change in it, and no step is left to do."""
    command.upgrade(config, "head")
    command.check(config)


def test_another_table_needs_another_revision() -> None:
    """A database of the old tables is refused, where otherwise its first statement would fail."""
    sqlite = create_engine("sqlite://").dialect
    tables = Base.metadata.sorted_tables
    made = [CreateTable(table) for table in tables]
    indexed = [CreateIndex(one) for table in tables for one in sorted(table.indexes, key=lambda one: str(one.name))]
    schema = "".join(str(one.compile(dialect=sqlite)) for one in [*made, *indexed])
    scripts = ScriptDirectory(str(MIGRATIONS))
    assert (scripts.get_current_head(), sha256(schema.encode()).hexdigest()[:16]) == SCHEMA


def test_a_new_registry_has_one_tenant_without_limits(url: str) -> None:
    """`default`, and nothing else."""
    snapshot = asyncio.run(read(url))
    assert [(one.name, one.quotas) for one in snapshot.tenants] == [("default", TenantQuotas())]
    assert (snapshot.adapters, snapshot.keys, snapshot.position.revision) == ((), (), 1)


@pytest.mark.parametrize("migrate", [True, False])
@pytest.mark.parametrize("revision", ["0017", "9999"])
def test_a_database_of_another_schema_is_refused_as_it_is(config, url, revision, migrate):
    """One sentence names the database, its schema and what to do, also to a reader; no table is added."""
    command.upgrade(config, "head")
    asyncio.run(execute(url, "DROP TABLE reports", f"UPDATE alembic_version SET version_num = '{revision}'"))  # noqa: S608
    name = database_url(url).database
    with pytest.raises(
        RegistryError,
        match=rf"^the registry '[^']*{name}' has the schema revision '{revision}', which this version of Peltier does "
        "not know: use the version that wrote it, or another registry$",
    ):
        asyncio.run(read(url, migrate=migrate))
    with pytest.raises(RegistryError, match="reports"):
        asyncio.run(execute(url, "SELECT * FROM reports"))


def test_a_reader_creates_no_tables(url: str) -> None:
    """An empty database is refused in one sentence and stays empty; the newest schema is read."""
    if url.startswith("sqlite"):
        Path(database_url(url).database or "").touch()
    for _ in range(2):
        with pytest.raises(RegistryError, match=r"^the registry '[^']+' is empty: start a server, or `peltier store"):
            asyncio.run(read(url, migrate=False))
    asyncio.run(read(url))
    asyncio.run(read(url, migrate=False))


async def read(url: str, *, migrate: bool = True) -> RegistrySnapshot:
    registry = await Registry.open(url, migrate=migrate)
    snapshot = await registry.snapshot()
    await registry.close()
    return snapshot


async def execute(url: str, *statements: str) -> None:
    transactions = Transactions(database_url(url))

    def work(connection: Connection) -> None:
        for statement in statements:
            connection.execute(text(statement))

    try:
        await transactions.claim(lambda queue: work(queue.connection))
    finally:
        await transactions.close()
