"""Which databases are accepted, and the errors for others."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from peltier_store.registry import database
from peltier_store.registry.database import database_url
from peltier_store.registry.errors import RegistryError
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.schema import _keep_write_ahead_log
from stamina.instrumentation import set_on_retry_hooks

from tests.adapters_store.store.conftest import MakeRegistry, opened
from tests.adapters_store.store.registry.conftest import publish
from tests.support.postgres_server import PostgresServer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is not there yet, in a directory that is not there yet."""
    return tmp_path / "new" / "registry.db"


@pytest.fixture
def url(path: Path) -> str:
    """The registry in it."""
    return f"sqlite+aiosqlite:///{path}"


async def test_registries_can_be_opened_at_the_same_moment(tmp_path: Path) -> None:
    """Several openings of one new database, and of different ones, all succeed."""
    urls = [f"sqlite+aiosqlite:///{tmp_path}/{index % 2}.db" for index in range(6)]
    registries = await asyncio.gather(*(Registry.open(url) for url in urls))
    for registry in registries:
        await publish(registry, b"one", tenant="default")
        await registry.close()


OPEN = """
import asyncio, sys
from peltier_store.registry.extensions.registry import Registry

async def open_and_close(url):
    await (await Registry.open(url)).close()

asyncio.run(open_and_close(sys.argv[1]))
"""


@pytest.mark.slow
def test_processes_can_open_a_new_database_at_the_same_moment(url: str) -> None:
    """Replicas that start together migrate it once, and none of them fails."""
    processes = [subprocess.Popen([sys.executable, "-c", OPEN, url]) for _ in range(4)]
    assert [process.wait() for process in processes] == [0, 0, 0, 0]


@pytest.mark.parametrize("at", [0, 1])
def test_a_log_may_be_moved_into_the_file_meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """By the last process that closes the database, between two reads of sizes: the file is whole all the time."""
    path.parent.mkdir()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE a (b)")
    writer.execute("PRAGMA wal_checkpoint")
    writer.execute("INSERT INTO a VALUES (zeroblob(100000))")
    sizes, size_of = list[int](), database._size_of

    def read_size(asked: Path) -> int:
        sizes.append(size_of(asked))
        if len(sizes) == at + 1:
            writer.close()
        return sizes[-1]

    monkeypatch.setattr(database, "_size_of", read_size)
    database.require_whole(path)
    assert len(sizes) > at


def test_the_write_ahead_log_waits_for_another_writer(tmp_path, request):
    """SQLite refuses to change the mode while another process writes, so opening tries again."""
    request.addfinalizer(lambda: set_on_retry_hooks(None))
    with closing(sqlite3.connect(tmp_path / "registry.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        set_on_retry_hooks([lambda _: writer.execute("ROLLBACK")])
        _keep_write_ahead_log(tmp_path / "registry.db")
        assert not writer.in_transaction
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def open_and_close(url: str) -> None:
    await (await Registry.open(url)).close()


def test_a_database_of_something_else_is_refused_and_left_as_it_was(path: Path, url: str) -> None:
    """Peltier adds no tables to the database of another program."""
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
    """The error shows the valid forms of a URL; a database in memory would lose acknowledged changes."""
    with pytest.raises(RegistryError, match=r"is not of the form sqlite\+aiosqlite:///PATH"):
        await Registry.open(text)


async def test_a_database_damaged_while_open_is_one_clear_sentence(path: Path, make_registry: MakeRegistry) -> None:
    """A failure of the database names the file, and never shows the statement."""
    async with opened(make_registry(path)) as registry:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DROP TABLE tenants")
        with pytest.raises(
            RegistryError, match=rf"^the registry '{path}' is missing or damaged: no such table: tenants$"
        ):
            await registry.snapshot()


def test_a_relative_path_means_the_directory_of_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database stays the same one when the process changes its directory."""
    monkeypatch.chdir(tmp_path)
    assert database_url("sqlite+aiosqlite:///registry.db").database == str(tmp_path / "registry.db")


@pytest.mark.postgres
def test_processes_can_migrate_one_postgresql_at_the_same_moment(postgres: PostgresServer) -> None:
    """Replicas that start together on a new database migrate it once, and none of them fails."""
    url = postgres.url(postgres.create_database())
    processes = [subprocess.Popen([sys.executable, "-c", OPEN, url]) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql+asyncpg://ann:secret@127.0.0.1:{port}/missing", 'role "ann" does not exist'),
        ("postgresql+asyncpg://postgres@127.0.0.1:{port}/missing", 'database "missing" does not exist'),
        ("postgresql+asyncpg://ann:secret@nowhere.invalid/missing", "not known"),
    ],
)
async def test_an_unusable_postgresql_is_one_sentence(postgres: PostgresServer, url: str, reason: str) -> None:
    """The address and the reason, never the password."""
    await require_sentence(url.format(port=postgres.port), reason)


async def test_a_postgresql_that_is_not_there_is_one_sentence() -> None:
    """The address and the reason, never the password."""
    await require_sentence("postgresql+asyncpg://ann:secret@127.0.0.1:1/missing", "Connect call failed")


async def require_sentence(url: str, reason: str) -> None:
    with pytest.raises(RegistryError, match=rf"^the registry 'postgresql\+asyncpg://[^\n]+{reason}[^\n]*$") as caught:
        await Registry.open(url)
    assert "secret" not in str(caught.value)


def test_a_url_that_cannot_be_read_does_not_show_its_password() -> None:
    """The error may be logged."""
    with pytest.raises(RegistryError, match=r"'mysql://\*\*\*@host/registry' is not of the form") as caught:
        database_url("mysql://ann:sec@ret@host/registry?password=secret")
    assert "sec" not in str(caught.value)


@pytest.mark.parametrize("share", [0.0001, 0.0005, 0.001, 0.1, 0.5, 0.97, 0.9999])
async def test_a_file_that_was_cut_short_is_refused_as_it_is(path, share, make_registry):
    """This holds for any cut, even within the last page, which SQLite would read as zeros; nothing is written."""
    url = make_registry(path)
    left = _cut(path, share)
    with pytest.raises(RegistryError, match=rf"^the registry '{path}' was cut short: it has {len(left)} bytes "):
        await Registry.open(url)
    assert _files(path.parent) == {path.name: left}


def _cut(path: Path, share: float) -> bytes:
    os.truncate(path, int(path.stat().st_size * share))
    return path.read_bytes()


def _files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}
