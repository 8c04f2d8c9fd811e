import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from peltier_adapters.blobs import Blobs, digest_of
from peltier_adapters.registry import AdapterUnknown, Registry, RegistryError, Version, VersionUnknown
from peltier_adapters.registry.database import MIGRATIONS, _keep_write_ahead_log, database_url
from peltier_adapters.registry.transactions import Writing


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "registry.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"


@pytest.fixture
async def registry(url: str) -> AsyncIterator[Registry]:
    registry = await open_with_tenants(url)
    yield registry
    await registry.close()


async def open_with_tenants(url: str) -> Registry:
    registry = await Registry.open(url)
    for tenant in ("acme", "zenith"):
        await registry.create_tenant(tenant, actor="operator")
    return registry


async def publish(registry: Registry, data: bytes, *, tenant: str = "acme", name: str = "sst2") -> tuple[Version, bool]:
    reservation = await registry.reserve(digest_of(data))
    return await registry.publish(
        tenant, name, reservation, size_bytes=len(data), preset="compacter", manifest='{"name": "é"}', actor="ann"
    )


async def test_a_version_says_what_was_published(registry: Registry) -> None:
    """The first version has number 1, every field as given, and the time in UTC."""
    before = datetime.now(UTC)
    version, created = await publish(registry, b"one")
    assert created
    assert before <= version.created_at <= datetime.now(UTC)
    expected = Version("acme", "sst2", 1, digest_of(b"one"), 3, "compacter", '{"name": "é"}', version.created_at, "ann")
    assert version == expected
    assert await registry.versions() == [expected]


async def test_versions_survive_reopening(url: str) -> None:
    """What was acknowledged is there in full after a restart, and numbers go on."""
    registry = await open_with_tenants(url)
    first, _ = await publish(registry, b"one")
    await registry.close()
    registry = await Registry.open(url)
    assert await registry.versions() == [first]
    assert (await publish(registry, b"two"))[0].number == 2
    await registry.close()


async def test_publishing_the_same_bytes_again_is_the_same_version(registry: Registry) -> None:
    """A repeated upload gets the version it made the first time, also after newer ones."""
    first, _ = await publish(registry, b"one")
    await publish(registry, b"two")
    assert await publish(registry, b"one") == (first, False)
    assert len(await registry.versions()) == 2


async def test_names_and_tenants_are_numbered_apart(registry: Registry) -> None:
    """The same bytes under another name, or of another tenant, are that adapter's own first version."""
    for tenant, name in [("acme", "sst2"), ("acme", "trec"), ("zenith", "sst2")]:
        version, created = await publish(registry, b"one", tenant=tenant, name=name)
        assert created
        assert version.number == 1
    listed = [(version.tenant, version.name) for version in await registry.versions()]
    assert listed == [("acme", "sst2"), ("acme", "trec"), ("zenith", "sst2")]


async def test_a_deleted_number_is_never_given_out_again(registry: Registry) -> None:
    """Neither deleting the newest version nor the whole adapter makes a number free, not even for the same bytes."""
    await publish(registry, b"one")
    await publish(registry, b"two")
    await registry.delete_version("acme", "sst2", 2, actor="ann")
    assert (await publish(registry, b"two"))[0].number == 3
    assert await registry.delete_adapter("acme", "sst2", actor="ann") == 2
    assert await registry.versions() == []
    version, created = await publish(registry, b"one")
    assert created
    assert version.number == 4


async def test_a_deletion_takes_nothing_else_with_it(registry: Registry) -> None:
    """Deleting one adapter's version leaves its other versions and other tenants' adapters alone."""
    await publish(registry, b"one")
    kept, _ = await publish(registry, b"two")
    other, _ = await publish(registry, b"one", tenant="zenith")
    await registry.delete_version("acme", "sst2", 1, actor="ann")
    assert await registry.versions() == [kept, other]
    await registry.delete_adapter("acme", "sst2", actor="ann")
    assert await registry.versions() == [other]


async def test_deleting_what_is_not_there_says_so(registry: Registry) -> None:
    """Which of the two is unknown, the adapter or the version, is the error's class and its sentence."""
    await publish(registry, b"one")
    with pytest.raises(AdapterUnknown, match=r"^adapter 'trec' does not exist$"):
        await registry.delete_adapter("acme", "trec", actor="ann")
    with pytest.raises(VersionUnknown, match=r"^adapter 'sst2' has no version 2$"):
        await registry.delete_version("acme", "sst2", 2, actor="ann")
    with pytest.raises(AdapterUnknown, match=r"^adapter 'sst2' does not exist$"):
        await registry.delete_version("zenith", "sst2", 1, actor="ann")


async def test_digests_are_those_of_versions_that_are_not_purged(registry: Registry) -> None:
    """A digest stays until the last version that has it is purged."""
    await publish(registry, b"one")
    await publish(registry, b"one", tenant="zenith")
    await publish(registry, b"two")
    await registry.delete_adapter("acme", "sst2", actor="ann")
    assert await registry.digests() == {digest_of(b"one"), digest_of(b"two")}
    assert await registry.purge(datetime.now(UTC), actor="gc") == {digest_of(b"two")}
    assert await registry.digests() == {digest_of(b"one")}


async def test_concurrent_publishes_of_the_same_bytes_make_one_version(registry: Registry, url: str) -> None:
    """Exactly one caller created the version, though they share no connection, and all are told the same one."""
    other = await Registry.open(url)
    results = await asyncio.gather(*(publish(opened, b"one") for opened in [registry, other] * 10))
    await other.close()
    assert sorted(created for _, created in results) == [False] * 19 + [True]
    assert len({version for version, _ in results}) == 1


async def test_concurrent_publishes_of_different_bytes_get_different_numbers(registry: Registry, url: str) -> None:
    """Numbers are handed out without a gap or a repetition."""
    other = await Registry.open(url)
    uploads = (publish(opened, bytes([index])) for index, opened in enumerate([registry, other] * 10))
    results = await asyncio.gather(*uploads)
    await other.close()
    assert sorted(version.number for version, _ in results) == list(range(1, 21))
    assert len(await registry.versions()) == 20


async def test_cancelled_publishes_leave_the_registry_working(registry: Registry) -> None:
    """A caller who goes away at any moment leaves a whole version or none, and holds up nobody."""
    for steps in range(30):
        task = asyncio.create_task(publish(registry, bytes([steps])))
        for _ in range(steps):
            await asyncio.sleep(0.0003)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or task.result()[1]
        await asyncio.wait_for(publish(registry, b"next%d" % steps), timeout=5)
    numbers = [version.number for version in await registry.versions()]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_closing_finishes_what_an_absent_caller_began(url: str) -> None:
    """A publish whose caller was cancelled is whole by the time the registry is closed."""
    registry = await open_with_tenants(url)
    reservation = await registry.reserve(digest_of(b"one"))
    publishing = registry.publish("acme", "sst2", reservation, size_bytes=3, preset="lora", manifest="{}", actor="ann")
    task = asyncio.create_task(publishing)
    await asyncio.sleep(0)
    task.cancel()
    await registry.close()
    registry = await Registry.open(url)
    assert [version.digest for version in await registry.versions()] == [digest_of(b"one")]
    await registry.close()


PUBLISH_FOREVER = """
import asyncio, sys
from peltier_adapters.blobs import Blobs, digest_of
from peltier_adapters.registry import Registry

async def publish_forever(url, directory):
    registry, blobs = await Registry.open(url), Blobs.open(directory)
    for index in range(1_000_000):
        data = b"%d" % index * 1000
        reservation = await registry.reserve(digest_of(data))
        digest = await blobs.put(data)
        version, _ = await registry.publish(
            "default", "sst2", reservation, size_bytes=len(data), preset="lora", manifest="{}", actor="ann"
        )
        print(version.number, digest, flush=True)

asyncio.run(publish_forever(*sys.argv[1:]))
"""


def publish_until_killed(url: str, directory: Path, num_acknowledged: int) -> list[list[str]]:
    arguments = [sys.executable, "-c", PUBLISH_FOREVER, url, str(directory)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline().split() for _ in range(num_acknowledged)]
        process.kill()
        return acknowledged + [line.split() for line in process.stdout if line.endswith("\n")]


@pytest.mark.parametrize("num_acknowledged", [1, 7, 40])
async def test_a_killed_process_loses_nothing_it_acknowledged(url: str, tmp_path: Path, num_acknowledged: int) -> None:
    """After kill -9 in the middle of publishing, every acknowledged version is there with its bytes."""
    acknowledged = await asyncio.to_thread(publish_until_killed, url, tmp_path / "blobs", num_acknowledged)
    registry, blobs = await Registry.open(url), Blobs.open(tmp_path / "blobs")
    versions = await registry.versions()
    listed = [[str(version.number), version.digest] for version in versions]
    assert listed[: len(acknowledged)] == acknowledged
    assert len(listed) <= len(acknowledged) + 1
    assert [len(await blobs.get(version.digest)) for version in versions] == [
        version.size_bytes for version in versions
    ]
    assert (await publish(registry, b"next", tenant="default"))[0].number == len(listed) + 1
    await registry.close()


async def test_commits_are_synced_to_a_write_ahead_log(registry: Registry) -> None:
    """Each connection that writes waits for the disk, so that a power loss takes back no acknowledgement."""

    async def look(writing: Writing) -> list[object]:
        pragmas = ("journal_mode", "synchronous", "foreign_keys")
        return [(await writing.connection.exec_driver_sql(f"PRAGMA {name}")).scalar() for name in pragmas]

    assert await registry._transactions.write("ann", look) == ["wal", 3, 1]  # 3 is EXTRA: FULL and more


def test_the_migrations_make_the_tables_that_the_code_expects(path: Path, url: str) -> None:
    """Alembic finds nothing to change in a database that was migrated to the newest revision."""
    config = Config(MIGRATIONS / "alembic.ini")
    path.parent.mkdir()
    config.set_main_option("sqlalchemy.url", url)
    command.upgrade(config, "head")
    command.check(config)


def test_a_database_of_the_first_schema_keeps_all_it_has(path: Path, url: str) -> None:
    """Its tenants become tenants, its versions stay what they were, live and numbered as before."""
    config = Config(MIGRATIONS / "alembic.ini")
    path.parent.mkdir()
    config.set_main_option("sqlalchemy.url", url)
    command.upgrade(config, "0001")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO adapters VALUES (1, 'acme', 'sst2', 7), (2, 'zenith', 'sst2', 1)")
        rows = [(1, 5, "sha256:a"), (1, 7, "sha256:b"), (2, 1, "sha256:a")]
        connection.executemany(
            "INSERT INTO versions VALUES (?, ?, ?, 3, 'lora', '{}', '2026-11-01 12:00:00.000000')", rows
        )
        connection.commit()

    async def look() -> None:
        registry = await Registry.open(url)
        moment = datetime(2026, 11, 1, 12, tzinfo=UTC)
        expected = [("acme", 5, "sha256:a"), ("acme", 7, "sha256:b"), ("zenith", 1, "sha256:a")]
        assert await registry.versions() == [
            Version(tenant, "sst2", number, digest, 3, "lora", "{}", moment) for tenant, number, digest in expected
        ]
        assert [tenant.name for tenant in await registry.tenants()] == ["acme", "default", "zenith"]
        assert (await publish(registry, b"next"))[0].number == 8
        await registry.close()

    asyncio.run(look())


async def test_registries_can_be_opened_at_the_same_moment(tmp_path: Path) -> None:
    """Several openings of one new database, and of different ones, all succeed."""
    urls = [f"sqlite+aiosqlite:///{tmp_path}/{index % 2}.db" for index in range(6)]
    registries = await asyncio.gather(*(Registry.open(url) for url in urls))
    for registry in registries:
        await publish(registry, b"one", tenant="default")
        await registry.close()


OPEN = """
import asyncio, sys
from peltier_adapters.registry import Registry

async def open_and_close(url):
    await (await Registry.open(url)).close()

asyncio.run(open_and_close(sys.argv[1]))
"""


def test_processes_can_open_a_new_database_at_the_same_moment(url: str) -> None:
    """Replicas that start together migrate it once, and none of them fails."""
    processes = [subprocess.Popen([sys.executable, "-c", OPEN, url]) for _ in range(4)]
    assert [process.wait() for process in processes] == [0, 0, 0, 0]


def test_the_write_ahead_log_waits_for_another_writer(tmp_path: Path) -> None:
    """SQLite refuses at once to change the mode while another process writes; opening tries again until it may."""
    with closing(sqlite3.connect(tmp_path / "registry.db", isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.2, writer.execute, ["ROLLBACK"])
        release.start()
        _keep_write_ahead_log(tmp_path / "registry.db")
        release.join()
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def open_and_close(url: str) -> None:
    await (await Registry.open(url)).close()


def test_a_newer_database_is_refused_and_left_as_it_was(path: Path, url: str) -> None:
    """A schema revision that this code does not know is never written to."""
    asyncio.run(open_and_close(url))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(RegistryError, match=r"written by a newer Peltier.* schema revision '9999'"):
        asyncio.run(open_and_close(url))
    assert path.read_bytes() == before


def test_a_database_of_something_else_is_refused_and_left_as_it_was(path: Path, url: str) -> None:
    """Peltier adds no tables to a database that is not its own."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE invoices (id INTEGER)")
    before = path.read_bytes()
    with pytest.raises(RegistryError, match="is not a Peltier registry: it holds a table 'invoices'"):
        asyncio.run(open_and_close(url))
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_as_it_was(path: Path, url: str) -> None:
    """The error names the file and says what is wrong with it."""
    path.parent.mkdir()
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(RegistryError, match=rf"^the registry '{path}' cannot be opened: file is not a database$"):
        asyncio.run(open_and_close(url))
    assert path.read_bytes() == b"not a database" * 100


@pytest.mark.parametrize("place", ["/proc/registry.db", "/dev/null/registry.db", "/proc", "/a\0b/registry.db"])
async def test_a_place_that_cannot_be_written_is_refused_in_one_line(place: str) -> None:
    """The reason comes at start-up, and it is one sentence that names the file."""
    with pytest.raises(RegistryError, match=r"^the registry '/.*' cannot be opened: [^\n]+$"):
        await Registry.open(f"sqlite+aiosqlite:///{place}")


@pytest.mark.parametrize(
    "text",
    [
        "registry.db",
        "sqlite:///registry.db",
        "sqlite+aiosqlite://",
        "sqlite+aiosqlite:///:memory:",
        "sqlite+aiosqlite:///file:registry.db?mode=memory&uri=true",
        "postgresql://localhost/peltier",
        "postgresql+asyncpg://localhost",
        "postgresql+asyncpg://localhost/peltier?command_timeout=1",
    ],
)
async def test_another_kind_of_registry_is_refused(text: str) -> None:
    """Only a database in a file keeps what it acknowledged; any other URL is refused with the form that is right."""
    with pytest.raises(RegistryError, match=r"is not of the form sqlite\+aiosqlite:///PATH"):
        await Registry.open(text)


async def test_a_database_damaged_while_open_is_one_clear_sentence(url: str, path: Path) -> None:
    """A failure of the database names the file, and never shows the statement."""
    registry = await Registry.open(url)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE tenants")
    with pytest.raises(RegistryError, match=rf"^the registry '{path}' failed: no such table: tenants$"):
        await registry.tenants()
    await registry.close()


def test_a_relative_path_means_the_directory_of_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database stays the same one when the process changes its directory."""
    monkeypatch.chdir(tmp_path)
    assert database_url("sqlite+aiosqlite:///registry.db").database == str(tmp_path / "registry.db")


def test_the_store_imports_without_torch() -> None:
    """Whoever only keeps adapters needs no torch."""
    script = "import sys, peltier_adapters.blobs, peltier_adapters.registry; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
