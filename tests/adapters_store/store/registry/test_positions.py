"""A database that was restored, or that lost changes in a crash, is noticed by one comparison, on both databases."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from peltier_store.registry import transactions
from peltier_store.registry.database import database_url
from peltier_store.registry.errors import RegistryGone, RegistryRewound
from peltier_store.registry.records import Position

from tests.adapters_store.store.conftest import opened
from tests.adapters_store.store.registry.conftest import publish
from tests.support.postgres_server import PostgresServer

Restore = Callable[[], None]


def save_sqlite(url: str) -> Restore:
    """The copy is written back through SQLite, so that open connections see it."""
    path, copy = Path(database_url(url).database or ""), sqlite3.connect(":memory:")
    with closing(sqlite3.connect(path)) as source:
        source.backup(copy)

    def restore() -> None:
        with closing(sqlite3.connect(path)) as target:
            copy.backup(target)
        copy.close()

    return restore


def save_postgres(url: str, postgres: PostgresServer) -> Restore:
    """The copy is a template, and restoring it breaks every connection."""
    name = database_url(url).database or ""
    disconnect = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"  # noqa: S608 - ours
    postgres.execute("postgres", disconnect)
    copy = postgres.create_database(name)

    def restore() -> None:
        postgres.execute("postgres", f"DROP DATABASE {name} WITH (FORCE)")
        postgres.execute("postgres", f"CREATE DATABASE {name} TEMPLATE {copy}")

    return restore


@pytest.fixture
def postgres_url(postgres: PostgresServer, postgres_url: str) -> str:
    """A database of the test's own, because it is dropped."""
    return postgres.url(postgres.create_database(database_url(postgres_url).database or ""))


@pytest.fixture
def save(request: pytest.FixtureRequest, url: str) -> Callable[[], Restore]:
    """`restore = save()`: `restore` puts the database back into the present state."""
    if url.startswith("sqlite"):
        return lambda: save_sqlite(url)
    return lambda: save_postgres(url, request.getfixturevalue("postgres"))


async def move_on(url: str, tenant: str) -> None:
    """A change by a process that has read nothing."""
    async with opened(url) as other:
        await other.create_tenant(tenant, actor="other")


@pytest.mark.parametrize("num_changes", [0, 1, 2, 3], ids=lambda count: f"{count} changes after it")
async def test_a_restored_copy_is_noticed_whatever_its_number(registry, url, save, num_changes):
    """It may have a lower revision than was read, the same, or a higher one, by other changes."""
    restore = save()
    await registry.create_tenant("lost", actor="ann")
    await registry.create_tenant("gone", actor="ann")
    seen = (await registry.snapshot()).position
    restore()
    for number in range(num_changes):
        await move_on(url, f"new-{number}")
    with pytest.raises(RegistryRewound, match=f"lacks the change that was its revision {seen.revision}: it was"):
        await registry.snapshot(seen)
    with pytest.raises(RegistryRewound):
        await registry.create_tenant("refused", actor="ann")
    whole = await registry.snapshot()
    assert whole.is_whole
    assert {one.name for one in whole.tenants} == {
        "default", "acme", "zenith", *(f"new-{number}" for number in range(num_changes)),
    }  # fmt: skip
    await registry.create_tenant("accepted", actor="ann")
    assert [one.name for one in (await registry.snapshot(whole.position)).tenants] == ["accepted"]


async def test_a_copy_with_all_that_was_read_needs_nothing_else(registry, url, save):
    """The database lacks only changes that this process has not read, so it goes on."""
    seen, restore = (await registry.snapshot()).position, save()
    await move_on(url, "lost")
    restore()
    await move_on(url, "new")
    assert [one.name for one in (await registry.snapshot(seen)).tenants] == ["new"]
    await registry.create_tenant("accepted", actor="ann")


async def test_an_own_change_that_was_lost_before_it_was_read_stops_nothing(registry, save):
    """What is in memory is still right, and so changes go on."""
    seen, restore = (await registry.snapshot()).position, save()
    await registry.create_tenant("lost", actor="ann")
    restore()
    assert await registry.position() == seen
    await registry.create_tenant("new", actor="ann")
    assert [one.name for one in (await registry.snapshot(seen)).tenants] == ["new"]


async def test_ids_are_kept_for_as_many_changes_as_a_replica_may_miss(registry, url, monkeypatch):
    """After more it reads everything again."""
    monkeypatch.setattr(transactions, "_KEPT_CHANGES", 6)
    monkeypatch.setattr(transactions, "_CHANGES_AT_ONCE", 2)
    positions = list[Position]()
    for number in range(20):
        await registry.create_tenant(f"tenant-{number}", actor="ann")
        positions.append(await registry.position())
    changed = await registry.snapshot(positions[-7])
    assert {one.name for one in changed.tenants} == {f"tenant-{number}" for number in range(14, 20)}
    async with opened(url) as late:
        with pytest.raises(RegistryRewound, match="or changed 6 times since"):
            await late.snapshot(positions[0])


@pytest.mark.postgres
async def test_a_dump_that_is_being_loaded_is_not_read(postgres_url: str, postgres: PostgresServer) -> None:
    """Its tables are filled one after another, the revision before the versions; a replica that read them then would
    never learn of the rest."""
    reach = ("-h", "127.0.0.1", "-p", str(postgres.port), "-U", "postgres")
    name = postgres.create_database()
    async with opened(postgres_url) as registry, opened(postgres.url(name)) as replica:
        replica._transactions._identity = await registry.identity()
        await publish(registry, b"one")
        postgres.run("pg_dump", *reach, "-Fc", "-f", "dump", database_url(postgres_url).database or "")
        for section, problem in (("pre-data", "is empty"), ("data", "is being restored")):
            postgres.run("pg_restore", *reach, "-d", name, f"--section={section}", "dump")
            with pytest.raises(RegistryGone, match=problem):
                await replica.snapshot()
        postgres.run("pg_restore", *reach, "-d", name, "--section=post-data", "dump")
        assert await replica.snapshot() == await registry.snapshot()


@pytest.mark.postgres
async def test_a_dump_that_ends_in_the_change_that_was_read_last_is_not_taken_for_whole(postgres_url, postgres):
    """A server that saw the database without tables neither reads nor writes until the dump is loaded, whatever its
    position is."""
    reach = ("-h", "127.0.0.1", "-p", str(postgres.port), "-U", "postgres")
    name = database_url(postgres_url).database or ""
    async with opened(postgres_url) as registry:
        await registry.identity()
        seen = (await registry.snapshot()).position
        postgres.run("pg_dump", *reach, "-Fc", "-f", "same", name)
        postgres.execute(name, "DROP SCHEMA public CASCADE")
        with pytest.raises(RegistryGone, match="is missing"):
            await registry.snapshot(seen)
        postgres.execute(name, "CREATE SCHEMA public")
        postgres.run("pg_restore", *reach, "-d", name, "--section=pre-data", "same")
        postgres.run("pg_restore", *reach, "-d", name, "--data-only", "-t", "revision", "-t", "changes", "same")
        for _ in range(2):
            with pytest.raises(RegistryGone, match="is being restored"):
                await registry.create_tenant("refused", actor="ann")
            with pytest.raises(RegistryGone, match="is being restored"):
                await registry.snapshot(seen)
        postgres.run("pg_restore", *reach, "-d", name, "--clean", "--if-exists", "same")
        assert (await registry.snapshot(seen)).position == seen
        await registry.create_tenant("accepted", actor="ann")
