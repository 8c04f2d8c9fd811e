"""Two replicas of one registry that crashes at any write, or that is restored: both end with what it has."""

import asyncio
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from peltier_adapters.artifact.manifest import read_header
from peltier_backbone.backbone import Backbone
from peltier_store.blobs.blobs import Blobs
from peltier_store.registry.database import Access, database_url
from peltier_store.registry.errors import RegistryError
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.schema import upgrade
from sqlalchemy import Connection

from tests.crash.databases import CrashingDatabase, PostgresDatabase, Restore, SqliteFile
from tests.crash.replica import SyncedReplica, Write, read_image
from tests.crash.writes import Writes
from tests.support.postgres_server import PostgresServer, run_postgres

When = Literal["before its commit", "after its commit"]
WHEN: tuple[When, ...] = ("before its commit", "after its commit")
HOW: tuple[Restore, ...] = ("while nobody has it open", "while others have it open")
# The two replicas, and a process that has seen nothing before, such as a command or a replica that has just started.
WRITERS = (0, 1, None)


class World:
    """A database, two replicas of it, and the changes that they can make."""

    def __init__(self, database: CrashingDatabase, folder: Path, manifest: str) -> None:
        self.database = database
        self.writes = Writes(manifest).by_name
        self._runner = asyncio.Runner()
        self._reader = Registry(database_url(database.url))
        blobs = Blobs.open(folder / "blobs")
        self._replicas = [SyncedReplica(Registry(database_url(database.url)), blobs) for _ in range(2)]
        for replica in self._replicas:
            self._run(replica.open())
        self.write(0, "publish")
        self.write(1, "point_alias")
        self.database.save()
        self.settle()

    def close(self) -> None:
        """Closes every connection."""
        for registry in (self._reader, *(replica.registry for replica in self._replicas)):
            self._run(registry.close())
        self._runner.close()
        self.database.close()

    def write(self, writer: int | None, name: str) -> None:
        """One of them makes a change, which may be refused."""
        with suppress(RegistryError):
            self._run(self._write(writer, self.writes[name]))

    def poll(self, number: int) -> None:
        """A replica reads what has changed. If it is ready, then it knows everything."""
        self._run(self._replicas[number].poll())
        if self._replicas[number].is_ready:
            assert self._replicas[number].image() == self._truth(), f"replica {number} differs from the registry"

    def crash_at(self, writer: int, name: str, nth: int, when: When) -> bool:
        """The database crashes at the n-th commit of a change, whose end the writer does not learn. The other replica
        has read everything before. Returns whether there are so many commits."""
        engines, commits = self._replicas[writer].registry._transactions._engines, itertools.count()
        run, other, reached = engines.run, self._replicas[1 - writer], False

        async def crashing(access: Access, work: Callable[[Connection], Any]) -> Any:
            nonlocal reached
            if access is Access.READ or next(commits) != nth:
                return await run(access, work)
            reached = True

            def interrupted(connection: Connection) -> Any:
                result = work(connection)
                self.database.interrupt()
                return result

            await run(access, interrupted if when == "before its commit" else work)
            await other.poll()
            self.database.crash()
            assert await read_image(self._reader) == other.image(), "the crash took back what a replica has read"
            raise OSError("the answer is lost")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engines, "run", crashing)
            self.write(writer, name)
        return reached

    def crash(self) -> None:
        """The database crashes, which takes back nothing that could be read."""
        before = self._truth()
        self.database.crash()
        assert self._truth() == before

    def settle(self) -> None:
        """Two polls are enough for every replica to know everything and to make changes again."""
        for _ in range(2):
            for replica in self._replicas:
                self._run(replica.poll())
        for number, replica in enumerate(self._replicas):
            assert replica.is_ready, f"replica {number} is not ready again"
            self._run(self._write(number, self.writes["create_and_revoke_key"]))
        for number in range(2):
            self.poll(number)

    async def _write(self, writer: int | None, write: Write) -> None:
        if writer is not None:
            await self._replicas[writer].change(write)
            return
        registry = Registry(database_url(self.database.url))
        try:
            await write(registry)
        finally:
            await registry.close()

    def _truth(self) -> dict[str, Any]:
        return self._run(read_image(self._reader))

    def _run(self, work: Any) -> Any:
        return self._runner.run(work)


class CrashMachine(RuleBasedStateMachine):
    """Changes by two replicas and others, polls, crashes and restores in any order."""

    def __init__(self, make: Callable[[], World]) -> None:
        super().__init__()
        self.world = make()

    def teardown(self) -> None:
        try:
            self.world.settle()
        finally:
            self.world.close()

    @rule(writer=st.sampled_from(WRITERS), data=st.data())
    def write(self, writer: int | None, data: st.DataObject) -> None:
        """A change."""
        self.world.write(writer, data.draw(st.sampled_from(sorted(self.world.writes))))

    @rule(writer=st.integers(0, 1), data=st.data(), nth=st.integers(0, 3), when=st.sampled_from(WHEN))
    def crash_at_a_write(self, writer: int, data: st.DataObject, nth: int, when: When) -> None:
        """A crash in the middle of a change."""
        self.world.crash_at(writer, data.draw(st.sampled_from(sorted(self.world.writes))), nth, when)

    @rule(number=st.integers(0, 1))
    def poll(self, number: int) -> None:
        """A replica reads."""
        self.world.poll(number)

    @rule()
    def crash(self) -> None:
        """A crash between changes."""
        self.world.crash()

    @rule()
    def save(self) -> None:
        """A new copy."""
        self.world.database.save()

    @rule(how=st.sampled_from(HOW))
    def restore(self, how: Restore) -> None:
        """The last copy is put back."""
        self.world.database.restore(how)


@pytest.fixture(scope="module")
def manifest(bert: Backbone, make_artifact: Callable[..., bytes]) -> str:
    """The manifest of all versions."""
    return json.dumps(read_header(make_artifact(bert, "bitfit"))[0].model_dump(mode="json"))


@pytest.fixture(scope="module")
def make_on_sqlite(manifest: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], World]:
    """Makes a new world on SQLite."""
    folder = tmp_path_factory.mktemp("crash")
    upgrade(database_url(f"sqlite+aiosqlite:///{folder}/registry.db"))
    numbers = itertools.count()

    def make() -> World:
        own = folder / str(next(numbers))
        own.mkdir()
        return World(SqliteFile(Path(shutil.copy(folder / "registry.db", own))), own, manifest)

    return make


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """A server that no other test uses, whose WAL writer is slow."""
    with run_postgres() as server:
        server.execute("postgres", "ALTER SYSTEM SET wal_writer_delay = '10s'")
        yield server


@pytest.fixture(scope="module")
def make_on_postgres(own_postgres, manifest, tmp_path_factory):
    """Makes a new world on PostgreSQL."""
    template = own_postgres.create_database()
    upgrade(database_url(own_postgres.url(template)))
    return lambda: World(PostgresDatabase(own_postgres, template), tmp_path_factory.mktemp("crash"), manifest)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def make(request: pytest.FixtureRequest) -> Callable[[], World]:
    """Makes a new world on each database in turn."""
    return request.getfixturevalue(f"make_on_{request.param}")


@pytest.mark.parametrize("how", HOW)
def test_a_restored_copy_replaces_what_the_replicas_know(make: Callable[[], World], how: Restore) -> None:
    """Also if changes by others reach the revision that a replica has read, and go beyond it, before it reads again."""
    world = make()
    for name in ("reserve_and_release", "create_and_revoke_key"):
        world.write(0, name)
    world.poll(1)
    world.database.restore(how)
    # The keys have revisions that the replica has read, and the versions have higher ones.
    for name in ("create_and_revoke_key", "publish", "publish", "publish"):
        world.write(None, name)
    world.poll(1)
    world.settle()
    world.close()


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize(
    "names", [("reserve_and_release", "create_and_revoke_key"), pytest.param((), marks=pytest.mark.slow)]
)
def test_a_crash_at_any_write_leaves_the_replicas_with_what_the_registry_has(make, names, when):
    """At every commit of changes of some kinds, or of all; then a process that has seen nothing writes first."""
    world, num_crashes = make(), 0
    for name in names or world.writes:
        for nth in itertools.count():
            if not world.crash_at(num_crashes % 2, name, nth, when):
                break
            num_crashes += 1
            world.write(None, "change_tenant")
            world.settle()
    world.close()
    assert num_crashes >= (5 if names else 60)


@pytest.mark.slow  # the tests above stay
def test_replicas_know_the_registry_after_any_crashes_and_restores(make, request):
    """Whoever has read or written what before, and whoever writes first."""
    few = {"max_examples": 8} if "postgres" in request.node.name else {}
    machine = settings(stateful_step_count=12, suppress_health_check=list(HealthCheck), **few)
    run_state_machine_as_test(lambda: CrashMachine(make), settings=machine)
