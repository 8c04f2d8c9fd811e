"""Commits are durable, an unreachable database is one error, a reachable one is used again, and the audit log has every
change."""

import asyncio
import threading

import pytest
from peltier_store.registry import database, transactions
from peltier_store.registry.database import Access, PostgresqlEngines, create_engines, database_url
from peltier_store.registry.errors import RegistryConflict, RegistryError, RegistryGone
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.records import AuditFilter
from peltier_store.registry.transactions import WriteTransaction
from sqlalchemy import Connection, event, text

from tests.adapters_store.store.registry.conftest import publish
from tests.support.postgres_server import PostgresServer


async def test_sqlite_syncs_commits_to_a_write_ahead_log(sqlite_url: str) -> None:
    """A write waits for the disk, so that a power loss undoes no acknowledged change."""
    registry = await Registry.open(sqlite_url)

    def look(writing: WriteTransaction) -> list[object]:
        pragmas = ("journal_mode", "synchronous", "foreign_keys")
        return [writing.connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in pragmas]

    assert await registry._transactions.write("ann", look) == ["wal", 3, 1]  # 3 is EXTRA: FULL and more
    await registry.close()


@pytest.mark.postgres
async def test_postgresql_acknowledges_what_is_on_its_disk(postgres_url: str) -> None:
    """The connection asks for synchronous commits, even if the database's default is off."""
    registry = await Registry.open(postgres_url)

    def look(writing: WriteTransaction) -> object:
        return writing.connection.exec_driver_sql("SHOW synchronous_commit").scalar()

    assert await registry._transactions.write("ann", look) == "on"
    await registry.close()


async def test_an_error_in_a_transaction_leaves_everything_as_it_was(registry: Registry) -> None:
    """The revision does not change either."""
    before = await registry.position()

    def fail(writing: WriteTransaction) -> None:
        writing.audit("acme", "nothing", "at all")
        raise KeyError("of ours")

    with pytest.raises(KeyError):
        await registry._transactions.write("ann", fail)
    assert (await registry.position(), [entry.action for entry in await registry.audit(limit=1)]) == (
        before, ["create_tenant"],
    )  # fmt: skip


@pytest.mark.postgres
async def test_a_postgresql_that_went_away_is_used_again_when_it_is_back(postgres, postgres_url):
    """While it is away each call fails at once with a RegistryError; acknowledged changes persist."""
    registry = await Registry.open(postgres_url)
    first, _ = await publish(registry, b"one")
    postgres.stop()
    try:
        for call in (registry.versions(), registry.reserve("sha256:0"), registry.snapshot()):
            with pytest.raises(RegistryError, match=r"^the registry 'postgresql.*' failed: [^\n]+$"):
                await call
    finally:
        postgres.start()
    assert await registry.versions() == [first]
    assert (await publish(registry, b"two"))[0].number == 2
    await registry.close()


@pytest.mark.postgres
async def test_a_connection_that_breaks_in_a_transaction_takes_only_that_one(postgres, postgres_url):
    """The broken transaction changes nothing, and the next caller gets a working connection."""
    registry = await Registry.open(postgres_url)

    def break_off(writing: WriteTransaction) -> None:
        writing.audit("acme", "nothing", "at all")
        writing.connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(RegistryError, match=r"^the registry 'postgresql.*' failed: [^\n]+$"):
        await registry._transactions.write("ann", break_off)
    await publish(registry, b"one")
    assert [entry.action for entry in await registry.audit(limit=2)] == ["publish", "create_tenant"]
    await registry.close()


async def test_no_writer_waits_for_ever_behind_others(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that waits too long fails in one sentence and changes nothing; other writers succeed."""
    monkeypatch.setattr(transactions, "_TURN_SECONDS", 0.1)
    began, goes_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        began.set()
        await goes_on.wait()

    hang = registry._transactions.waiting(wait)
    slow = asyncio.create_task(registry._transactions.write("ann", lambda _: hang()))
    await began.wait()
    results = await asyncio.gather(*(publish(registry, b"one") for _ in range(5)), return_exceptions=True)
    assert {type(result) for result in results} == {RegistryError}
    assert "failed: earlier writers have not finished within 0.1 s" in str(results[0])
    goes_on.set()
    await slow
    assert (await publish(registry, b"one"))[0].number == 1


@pytest.mark.postgres
async def test_a_restore_may_take_its_time(postgres: PostgresServer) -> None:
    """A transaction that waits for a slow step, such as listing a large bucket, may be idle for any time, and no other
    writer may."""
    registry = await Registry.open(postgres.url(postgres.create_database()))
    show, limits, writing = "SHOW idle_in_transaction_session_timeout", list[object](), list[Connection]()
    engines = registry._transactions._engines
    assert isinstance(engines, PostgresqlEngines)
    event.listen(engines._engines[Access.WRITE].sync_engine, "begin", writing.append)

    async def look() -> None:
        limits.append(await writing[-1].connection.driver_connection.fetchval(show))

    await registry.contents.restore([], look)
    assert (await registry.snapshot()).tenants == ()
    limits.append(await registry._transactions.write("ann", lambda one: one.connection.exec_driver_sql(show).scalar()))
    assert limits == ["0", "15s"]
    await registry.close()


@pytest.mark.postgres
async def test_a_writer_that_hangs_lets_the_others_go_on(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL ends the idle transaction of a stopped replica, which then has changed nothing."""
    monkeypatch.setattr(database, "_IDLE_SECONDS", 0.3)
    # Nothing else has so short a limit, which also counts the pauses of this process between two statements.
    hanging = Registry(database_url(postgres_url))
    monkeypatch.undo()
    other = await Registry.open(postgres_url)
    hangs, goes_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        hangs.set()
        await goes_on.wait()

    hang = hanging._transactions.waiting(wait)

    def write(writing: WriteTransaction) -> None:
        writing.audit("acme", "nothing", "at all")
        hang()

    stuck = asyncio.create_task(hanging._transactions.write("ann", write))
    stuck.add_done_callback(lambda _: hangs.set())  # PostgreSQL may end it before it hangs
    await hangs.wait()
    assert (await publish(other, b"one"))[1]
    goes_on.set()
    with pytest.raises(RegistryError):
        await stuck
    assert [entry.action for entry in await other.audit(limit=2)] == ["publish", "create_tenant"]
    await asyncio.gather(hanging.close(), other.close())


@pytest.mark.postgres
async def test_another_registry_in_the_same_database_is_refused(postgres, postgres_url, migrated_database):
    """A write notices that all contents of the database were replaced while its connections stayed open."""
    registry = Registry(database_url(postgres_url))
    await registry.identity()
    swap = "UPDATE revision SET registry_id = reverse(registry_id)"
    try:
        postgres.execute(migrated_database, swap)
        with pytest.raises(RegistryGone, match="was replaced by another one: "):
            await registry.create_tenant("gone", actor="ann")
    finally:
        postgres.execute(migrated_database, swap)
    await registry.create_tenant("back", actor="ann")
    await registry.close()


@pytest.mark.postgres
async def test_a_database_that_was_dropped_is_gone(postgres: PostgresServer, migrated_database: str) -> None:
    """The database server answers that the database does not exist."""
    name = postgres.create_database(migrated_database)
    registry = Registry(database_url(postgres.url(name)))
    await registry.identity()
    postgres.execute(migrated_database, f"DROP DATABASE {name} WITH (FORCE)")
    with pytest.raises(RegistryGone, match="does not exist"):
        await registry.create_tenant("lost", actor="ann")
    await registry.close()


async def test_what_did_not_happen_is_not_in_the_log(registry: Registry) -> None:
    """Refused changes and changes without effect have no entry."""
    await publish(registry, b"one")
    before = await registry.audit()
    await publish(registry, b"one")
    await registry.undelete("acme", "sst2", 1, actor="ann")
    with pytest.raises(RegistryConflict):
        await registry.create_tenant("acme", actor="operator")
    assert await registry.audit() == before


async def test_the_log_is_read_page_by_page(registry: Registry) -> None:
    """A page begins after the last entry of the previous page, newest first, for all tenants or for one."""
    for number in range(5):
        await publish(registry, b"%d" % number, tenant=("acme", "zenith")[number % 2])
    everything = await registry.audit()
    assert [entry.id for entry in everything] == sorted((entry.id for entry in everything), reverse=True)
    pages = [await registry.audit(limit=3)]
    while len(pages[-1]) == 3:
        pages.append(await registry.audit(limit=3, before_id=pages[-1][-1].id))
    assert [entry for page in pages for entry in page] == everything
    assert [entry.subject for entry in await registry.audit(AuditFilter(tenant="zenith"), limit=2)] == [
        "sst2@2",
        "sst2@1",
    ]


async def test_a_transaction_of_sqlite_costs_one_change_of_thread(sqlite_url: str) -> None:
    """All statements run in one thread, because handing each to another thread takes longer than running it."""
    engines, threads = create_engines(database_url(sqlite_url)), set[int]()

    def work(connection: Connection) -> None:
        connection.connection.driver_connection.set_trace_callback(lambda _: threads.add(threading.get_ident()))
        for _ in range(3):
            connection.execute(text("SELECT 1"))
        threads.add(threading.get_ident())

    await engines.run(Access.READ, work)
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    await engines.close()
