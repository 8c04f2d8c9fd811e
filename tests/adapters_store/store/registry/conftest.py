"""Runs every test of the registry on both databases: SQLite and, except in the gate, a real PostgreSQL."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry import database
from peltier_store.registry.database import database_url
from peltier_store.registry.extensions import training_holder
from peltier_store.registry.extensions.queue_records import TrainingDraft
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.extensions.training_holder import TrainingHold
from peltier_store.registry.registry import OnPublish
from peltier_store.registry.schema import upgrade

from tests.adapters_store.store.conftest import MakeRegistry, opened
from tests.support.postgres_server import PostgresServer

TENANTS = ("acme", "zenith")
# PostgreSQL takes 1 ms for these, and 100 ms to truncate the tables.
_AS_NEW = """
    DELETE FROM answers; DELETE FROM reporters; DELETE FROM rollouts; DELETE FROM batch_parts; DELETE FROM batches;
    DELETE FROM idempotency_keys;
    DELETE FROM training_events; DELETE FROM trainings; DELETE FROM training_time; DELETE FROM files;
    DELETE FROM aliases; DELETE FROM versions; DELETE FROM adapters; DELETE FROM keys;
    DELETE FROM reservations; DELETE FROM collections;
    DELETE FROM audit WHERE action <> 'create_tenant' OR tenant NOT IN ('acme', 'zenith');
    DELETE FROM tenants WHERE name NOT IN ('default', 'acme', 'zenith');
    UPDATE tenants SET max_adapters = NULL, max_stored_bytes = NULL,
        max_trainings = NULL, max_training_rows = NULL, max_training_minutes_per_day = NULL;
"""


@contextmanager
def _patient() -> Iterator[None]:
    """Nothing is promised of the time that a connection to a busy PostgreSQL takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_CONNECT_SECONDS", 60)
        yield


@pytest.fixture(scope="module", autouse=True)
def _patient_connections() -> Iterator[None]:
    """Of tests of the registry alone: other modules of the same process read the time that is promised."""
    with _patient():
        yield


@pytest.fixture(scope="session")
def file_with_tenants(make_registry: MakeRegistry, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite registry with `TENANTS`, to copy."""
    path = tmp_path_factory.mktemp("tenants") / "registry.db"
    asyncio.run(_add_tenants(make_registry(path)))
    return path


@pytest.fixture(scope="session")
def migrated_database(postgres: PostgresServer) -> str:
    """The same in PostgreSQL, to use again and again: making a database costs more than emptying it."""
    name = postgres.create_database()
    with _patient():
        upgrade(database_url(postgres.url(name)))
        asyncio.run(_add_tenants(postgres.url(name)))
    return name


@pytest.fixture
def sqlite_url(file_with_tenants: Path, tmp_path: Path) -> str:
    """A new registry in a file."""
    return f"sqlite+aiosqlite:///{shutil.copy(file_with_tenants, tmp_path)}"


@pytest.fixture
def postgres_url(postgres: PostgresServer, migrated_database: str) -> str:
    """A registry in PostgreSQL that is as new."""
    postgres.execute(migrated_database, _AS_NEW)
    return postgres.url(migrated_database)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest) -> str:
    """A new registry with the tenants `default`, `acme` and `zenith`, on each database in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
async def registry(url: str) -> AsyncIterator[Registry]:
    """It, open."""
    async with opened(url) as registry:
        yield registry


async def publish(registry, data, *, tenant="acme", name="sst2", **more):
    """Publishes bytes that are stored nowhere, as `ann`."""
    reservation = await registry.reserve(digest_of(data))
    return await registry.publish(
        tenant,
        name,
        reservation,
        size_bytes=len(data),
        preset="compacter",
        manifest='{"name": "é"}',
        **more,
        actor="ann",
    )


def ends(hold: TrainingHold) -> OnPublish:
    """What a publication does at last: it ends the training that made the version."""
    return lambda writing, version: training_holder.publish(writing, hold, version)


async def _add_tenants(url: str) -> None:
    async with opened(url) as registry:
        for tenant in TENANTS:
            await registry.create_tenant(tenant, actor="operator")


async def add_file(registry, data=b"{}\n", *, tenant="acme", num_rows=1, is_inline=False):
    """Records examples that are stored nowhere, as `ann`."""
    reservation = await registry.reserve(digest_of(data))
    return await registry.files.add(
        tenant,
        reservation,
        name="train.jsonl",
        purpose="fine-tune",
        size_bytes=len(data),
        num_rows=num_rows,
        is_inline=is_inline,
        actor="ann",
    )


async def add_training(registry, data=b"{}\n", *, tenant="acme", task="sst2"):
    """Queues a training of examples that were sent with it, as `ann`."""
    file = await add_file(registry, data, tenant=tenant, is_inline=True)
    return await registry.trainings.create(tenant, TrainingDraft("sst2", {"seed": 1}, file.id), actor="ann")
