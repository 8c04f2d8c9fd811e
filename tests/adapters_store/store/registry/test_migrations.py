"""The schema's history ends in the tables that the code expects, and loses nothing on the way."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from peltier_store.registry import Quotas, Registry, RegistryError, RegistrySnapshot, VersionRecord
from peltier_store.registry.database import MIGRATIONS, database_url
from peltier_store.registry.tables import TrainingRow, TrainingTimeRow
from peltier_store.registry.transactions import Access, create_engines
from sqlalchemy import Connection, select, text

from benchmarks.common.postgres_server import PostgresServer
from tests.adapters_store.store.registry.conftest import publish

FIRST_ROWS = (
    "INSERT INTO adapters (id, tenant, name, last_number) VALUES (1, 'acme', 'sst2', 7), (2, 'zenith', 'sst2', 1)",
    "INSERT INTO versions (adapter_id, number, digest, size_bytes, preset, manifest, created_at) VALUES "
    "(1, 5, 'sha256:a', 3, 'lora', '{}', '2026-11-01 12:00:00.000000'), "
    "(1, 7, 'sha256:b', 3, 'lora', '{}', '2026-11-01 12:00:00.000000'), "
    "(2, 1, 'sha256:a', 3, 'lora', '{}', '2026-11-01 12:00:00.000000')",
)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Config:
    """Alembic's configuration for an empty database of each kind."""
    url = f"sqlite+aiosqlite:///{tmp_path / 'registry.db'}"
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        url = postgres.url(postgres.create_database())
    config = Config(MIGRATIONS / "alembic.ini")
    config.set_main_option("sqlalchemy.url", url)
    return config


def test_the_migrations_make_the_tables_that_the_code_expects(config: Config) -> None:
    """Alembic finds nothing to change in a database that was migrated to the newest revision."""
    command.upgrade(config, "head")
    command.check(config)


def test_a_database_of_the_first_schema_keeps_all_it_has(config: Config) -> None:
    """Its tenants become tenants, and its versions stay live under their numbers."""
    command.upgrade(config, "0001")
    url = config.get_main_option("sqlalchemy.url", "")
    asyncio.run(execute(url, FIRST_ROWS))
    versions, tenants, next_number = asyncio.run(upgrade_and_look(url))
    moment = datetime(2026, 11, 1, 12, tzinfo=UTC)
    expected = [("acme", 5, "sha256:a"), ("acme", 7, "sha256:b"), ("zenith", 1, "sha256:a")]
    assert versions == [
        VersionRecord(tenant, "sst2", n, digest, 3, "lora", "{}", moment) for tenant, n, digest in expected
    ]
    assert tenants == ["acme", "default", "zenith"]
    assert next_number == 8


def test_an_upgrade_opens_and_limits_nothing(config: Config) -> None:
    """The new columns have neutral values: adapters are private, no version is deprecated or deleted, and there are no
    aliases, quotas or keys."""
    command.upgrade(config, "0001")
    url = config.get_main_option("sqlalchemy.url", "")
    asyncio.run(execute(url, FIRST_ROWS))
    snapshot = asyncio.run(upgrade_and_read(url))
    assert [(one.tenant, one.name, one.is_public, one.aliases) for one in snapshot.adapters] == [
        ("acme", "sst2", False, ()), ("zenith", "sst2", False, ()),
    ]  # fmt: skip
    versions = [version for one in snapshot.adapters for version in one.versions]
    assert {(one.deprecated_at, one.deprecation, one.deleted_at, one.created_by) for one in versions} == {
        (None, None, None, "")
    }
    assert {tenant.quotas for tenant in snapshot.tenants} == {Quotas()}
    assert snapshot.keys == ()


def test_the_minutes_of_trainings_count_after_the_upgrade(config: Config) -> None:
    """Those of existing and of deleted trainings, in the hour in which they began; older ones do not count."""
    command.upgrade(config, "0010")
    url = config.get_main_option("sqlalchemy.url", "")
    recent, old = (f"{datetime.now(UTC) - timedelta(hours=hours):%Y-%m-%d %H:%M:%S.%f}" for hours in (1, 30))
    spent = ", ".join(f"('d{n}', 'acme', '{at}', 30.0)" for n, at in enumerate((recent, recent, old)))
    columns = "id, tenant, task, state, request, keep_examples, size_bytes, created_at, created_by, started_at, seconds"
    training = f"'t', 'acme', 'sst2', 'failed', '{{}}', false, 1, '{recent}', 'ann', '{recent}', 60.0, 0, 0, 0"
    asyncio.run(execute(url, (
        "INSERT INTO tenants (name, created_at, revision, weight) VALUES ('acme', '2026-11-01 12:00:00.000000', 1, 1)",
        f"INSERT INTO deleted_trainings (id, tenant, started_at, seconds) VALUES {spent}",  # noqa: S608
        f"INSERT INTO trainings ({columns}, attempts, checkpoint_bytes, artifact_bytes) VALUES ({training})",  # noqa: S608
    )))  # fmt: skip
    command.upgrade(config, "head")
    assert asyncio.run(seconds_of_hours(url)) == [("acme", f"{recent[:13]}:00:00", 120.0)]


def test_requests_of_trainings_are_shown_after_the_upgrade(config: Config) -> None:
    """Whatever texts the requests have: PostgreSQL reads no value of JSON with a zero byte in it."""
    command.upgrade(config, "0014")
    url = config.get_main_option("sqlalchemy.url", "")
    requests = (
        r'{"preset": "lora", "recipe": "bert-base/glue", "label_column": "a\u0000"}',
        r'{"task_type": "span", "recipe": "a\u0000", "preset": "\ud800"}',
    )
    columns = "id, tenant, task, state, request, keep_examples, size_bytes, created_at, created_by, seconds"
    asyncio.run(execute(url, (
        "INSERT INTO tenants (name, created_at, revision, weight) VALUES ('acme', '2026-11-01 12:00:00.000000', 1, 1)",
        *(
            f"INSERT INTO trainings ({columns}, attempts, checkpoint_bytes, artifact_bytes) VALUES ('{number}', "  # noqa: S608
            f"'acme', 'sst2', 'failed', '{request}', false, 1, '2026-11-01 12:00:00.000000', 'ann', 0, 0, 0, 0)"
            for number, request in enumerate(one.replace(":", r"\:") for one in requests)
        ),
    )))  # fmt: skip
    command.upgrade(config, "head")
    assert asyncio.run(outlines(url)) == [(None, "lora", "bert-base/glue"), ("span", None, None)]


def test_a_reader_upgrades_nothing(config: Config) -> None:
    """An older schema is refused in one sentence and not changed; the newest schema is read without a migration."""
    command.upgrade(config, "0001")
    url = config.get_main_option("sqlalchemy.url", "")
    for _ in range(2):
        with pytest.raises(
            RegistryError, match=r"^the registry '[^']+' was written by an older version of Peltier; use that"
        ):
            asyncio.run(read(url))
    command.upgrade(config, "head")
    asyncio.run(read(url))


async def read(url: str) -> None:
    registry = await Registry.open(url, migrate=False)
    await registry.snapshot()
    await registry.close()


async def execute(url: str, statements: tuple[str, ...]) -> None:
    def work(connection: Connection) -> None:
        for statement in statements:
            connection.execute(text(statement))

    engines = create_engines(database_url(url))
    await engines.run(Access.WRITE, work)
    await engines.close()


async def seconds_of_hours(url: str) -> list[tuple[str, str, float]]:
    engines = create_engines(database_url(url))
    found = await engines.run(
        Access.READ, lambda connection: connection.execute(select(*TrainingTimeRow.__table__.columns)).all()
    )
    await engines.close()
    return [(one.tenant, f"{one.hour:%Y-%m-%d %H:%M:%S}", one.seconds) for one in found]


async def outlines(url: str) -> list[tuple[str | None, ...]]:
    wanted = select(TrainingRow.task_type, TrainingRow.preset, TrainingRow.recipe).order_by(TrainingRow.id)
    engines = create_engines(database_url(url))
    found = await engines.run(Access.READ, lambda connection: connection.execute(wanted).all())
    await engines.close()
    return [tuple(one) for one in found]


async def upgrade_and_read(url: str) -> RegistrySnapshot:
    registry = await Registry.open(url)
    snapshot = await registry.snapshot()
    await registry.close()
    return snapshot


async def upgrade_and_look(url: str) -> tuple[list[VersionRecord], list[str], int]:
    registry = await Registry.open(url)
    assert len((await registry.snapshot()).adapters) == 2
    found = await registry.versions(), [tenant.name for tenant in (await registry.snapshot()).tenants]
    published, _ = await publish(registry, b"next")
    await registry.close()
    return *found, published.number
