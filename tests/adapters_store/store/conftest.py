"""Registries and blob stores for the tests of a store."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from peltier_adapters.artifact.manifest import read_header
from peltier_store.blobs.blobs import Blobs, StoredBlob, digest_of
from peltier_store.registry.database import database_url
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.schema import upgrade

MakeRegistry = Callable[[Path], str]


class Old(Blobs):
    """A store whose blobs were put three hours ago."""

    async def entries(self) -> AsyncIterator[StoredBlob]:
        async for entry in super().entries():
            yield replace(entry, modified_at=entry.modified_at - timedelta(hours=3))


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Registry]:
    """A registry whose schema is known to be the newest."""
    registry = Registry(database_url(url))
    try:
        yield registry
    finally:
        await registry.close()


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite registry without versions, to copy: migrating costs more than most tests."""
    path = tmp_path_factory.mktemp("migrated") / "registry.db"

    async def migrate() -> None:
        await (await Registry.open(f"sqlite+aiosqlite:///{path}")).close()

    asyncio.run(migrate())
    return path


@pytest.fixture(scope="session")
def make_registry(migrated_file: Path) -> MakeRegistry:
    """`make_registry(path) -> url`: a new registry in that file, with an identity of its own."""

    def make(path: Path) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(migrated_file, path)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE revision SET registry_id = lower(hex(randomblob(16)))")
        return f"sqlite+aiosqlite:///{path}"

    return make


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def new_url(request, make_registry, tmp_path):
    """A new registry in each database in turn."""
    if request.param == "sqlite":
        return make_registry(tmp_path / "new" / "registry.db")
    server = request.getfixturevalue("postgres")
    url = server.url(server.create_database())
    upgrade(database_url(url))
    return url


@pytest.fixture
async def registry(make_registry, tmp_path):
    """A new registry in a file, open."""
    async with opened(make_registry(tmp_path / "registry.db")) as registry:
        yield registry


def manifest_of(data):
    """The manifest of an artifact, as a registry records it."""
    return json.dumps(read_header(data)[0].model_dump(mode="json"))


async def upload(registry, blobs, data, *, tenant="default", name="demo", manifest="{}", **more):
    """Publishes bytes as a server does, as `ann`; returns their digest."""
    reservation = await registry.reserve(digest_of(data))
    digest = await blobs.put(data)
    await registry.publish(
        tenant, name, reservation, size_bytes=len(data), preset="lora", manifest=manifest, **more, actor="ann"
    )
    return digest


@pytest.fixture(params=["directory", "bucket"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The location of an empty blob store of each kind in turn."""
    return str(tmp_path / "new" / "blobs") if request.param == "directory" else request.getfixturevalue("s3_store")
