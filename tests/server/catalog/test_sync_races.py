"""Races between reads of the registry and other work: no write is missed."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from peltier_adapters.artifact.manifest import read_header
from peltier_client.errors import NotReady
from peltier_server.catalog.catalog import Catalog
from peltier_server.catalog.sync import RegistrySync
from peltier_server.context import AdapterKey
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry.errors import RegistryError, RegistryRewound
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.records import Position, RegistrySnapshot

from tests.server.gate import Gate

TENANT = "default"


@dataclass
class Keys:
    """An image that follows: the snapshots it was given, and what of the catalog was there by then."""

    catalog: Catalog
    snapshots: list[RegistrySnapshot] = field(default_factory=list)
    there: list[set[str]] = field(default_factory=list)
    then: Callable[[], object] = lambda: None

    def apply(self, snapshot: RegistrySnapshot) -> None:
        self.snapshots.append(snapshot)
        self.there.append(names_in(self.catalog))
        self.then()


@dataclass(frozen=True)
class Replica:
    """A registry and what follows it, without a server around."""

    registry: Registry
    catalog: Catalog
    keys: Keys
    sync: RegistrySync
    retired: list[AdapterKey]
    manifest: str

    def retire(self, key: AdapterKey) -> None:
        """Removes the last use of these bytes."""
        self.retired.append(key)

    async def publish(self, name: str, data: bytes = b"x") -> None:
        reservation = await self.registry.reserve(digest_of(data))
        await self.registry.publish(
            TENANT, name, reservation, size_bytes=1, preset="bitfit", manifest=self.manifest, actor="test"
        )


@pytest.fixture
async def replica(new_registry, tmp_path, bert, make_artifact):
    """With the adapter `first`, which it has read."""
    url = f"sqlite+aiosqlite:///{shutil.copy(new_registry, tmp_path)}"
    registry, catalog = await Registry.open(url, migrate=False), Catalog()
    keys = Keys(catalog)
    manifest = json.dumps(read_header(make_artifact(bert, "bitfit"))[0].model_dump(mode="json"))
    replica = Replica(registry, catalog, keys, RegistrySync(registry, catalog, keys), [], manifest)
    replica.sync._slots = replica
    await replica.publish("first")
    await replica.sync.catch_up()
    yield replica
    await registry.close()


def names_in(catalog: Catalog) -> set[str]:
    return {entry.version.name for entry in catalog.entries()}


async def test_a_write_during_a_read_is_in_memory_when_it_has_been_shown(replica, monkeypatch):
    """The read under way may be of a moment before it, so another one follows: one for all who wait together."""
    gate = Gate(replica.registry.snapshot, after=True)
    monkeypatch.setattr(replica.registry, "snapshot", gate)
    reading = asyncio.create_task(replica.sync.catch_up())
    await gate.reached()
    await replica.publish("second")
    showing = [asyncio.create_task(replica.sync.sync_after_write()) for _ in range(5)]
    await asyncio.sleep(0)
    gate.opened.set()
    await asyncio.gather(reading, *showing)
    assert names_in(replica.catalog) == {"first", "second"}
    assert gate.num_calls == 2


def cancelled() -> None:
    """Whoever reads gives up as soon as they wait for anything."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def broken() -> None:
    """An unexpected failure."""
    raise RuntimeError("out of luck")


@pytest.mark.parametrize("accident", [cancelled, broken])
async def test_a_read_that_breaks_off_in_between_is_made_again(replica: Replica, accident: Callable[[], None]) -> None:
    """Whichever part of it was in memory by then, nothing of it is taken for read: neither keys nor adapters."""
    for name in ("second", "third"):
        await replica.publish(name)
    replica.keys.then = accident
    reading = asyncio.create_task(replica.sync.catch_up())
    await asyncio.gather(reading, return_exceptions=True)
    assert names_in(replica.catalog) < {"first", "second", "third"}
    replica.keys.then = lambda: None
    await replica.sync.catch_up()
    assert names_in(replica.catalog) == {"first", "second", "third"}
    assert replica.keys.snapshots[-1] == replica.keys.snapshots[-2]


async def test_keys_are_taken_away_before_adapters_come(replica: Replica) -> None:
    """No key that was revoked before an adapter came ever opens it."""
    await replica.publish("second")
    await replica.sync.catch_up()
    assert replica.keys.there == [set(), {"first"}]
    assert names_in(replica.catalog) == {"first", "second"}


@pytest.mark.parametrize("names", [("a", "z"), ("z", "a")])
async def test_bytes_that_go_under_one_name_and_come_under_another_stay(replica, names):
    """Found in one read, in whichever order, they are on the device all along; gone for good, they leave it."""
    old, new = names
    await replica.publish(old, b"moved")
    await replica.sync.catch_up()
    await replica.registry.delete_adapter(TENANT, old, actor="test")
    await replica.publish(new, b"moved")
    await replica.sync.catch_up()
    assert replica.retired == []
    await replica.registry.delete_adapter(TENANT, new, actor="test")
    await replica.sync.catch_up()
    assert replica.retired == [AdapterKey(TENANT, digest_of(b"moved"))]


async def test_bytes_that_are_gone_leave_though_the_read_breaks_off(replica: Replica) -> None:
    """The read that is made again does not find them gone, since they already are."""
    await replica.registry.delete_adapter(TENANT, "first", actor="test")
    await replica.publish("second", b"other")
    replica.keys.then = cancelled
    await asyncio.gather(asyncio.create_task(replica.sync.catch_up()), return_exceptions=True)
    replica.keys.then = lambda: None
    await replica.sync.catch_up()
    assert replica.retired == [AdapterKey(TENANT, digest_of(b"x"))]


def put_in_place(path: Path, copy: bytes) -> None:
    """Replaces a registry by a copy, and removes what SQLite keeps beside it."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    path.write_bytes(copy)


@pytest.fixture
async def restored(replica: Replica, tmp_path: Path) -> Replica:
    """It has read `lost`, and then an older copy of its registry was put in place, and `new` published in that."""
    path = tmp_path / "registry.db"
    with closing(sqlite3.connect(path)) as database:
        copy = database.serialize()
    await replica.publish("lost", b"lost")
    await replica.sync.catch_up()
    put_in_place(path, copy)
    other = await Registry.open(f"sqlite+aiosqlite:///{path}", migrate=False)
    await replace(replica, registry=other).publish("new", b"new")
    await other.close()
    return replica


async def test_a_restored_registry_replaces_what_is_in_memory(restored, caplog):
    """It has as many changes as were read, but others. What it lacks leaves the catalog, the memory and the keys; the
    log says so in one line, and changes are made again."""
    await restored.sync.catch_up()
    assert names_in(restored.catalog) == {"first", "new"}
    assert restored.retired == [AdapterKey(TENANT, digest_of(b"lost"))]
    assert restored.keys.snapshots[-1].is_whole
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["everything is read again"]
    restored.sync.require_current()
    await restored.publish("next", b"next")


async def test_what_was_read_in_part_is_replaced_too(replica: Replica, tmp_path: Path) -> None:
    """Of a change that the registry lost, a read that broke off may have brought the keys and not the adapters."""
    with closing(sqlite3.connect(tmp_path / "registry.db")) as database:
        copy = database.serialize()
    await replica.publish("lost", b"lost")
    replica.keys.then = cancelled
    await asyncio.gather(asyncio.create_task(replica.sync.catch_up()), return_exceptions=True)
    replica.keys.then = lambda: None
    put_in_place(tmp_path / "registry.db", copy)
    await replica.sync.catch_up()
    assert replica.keys.snapshots[-1].is_whole
    assert names_in(replica.catalog) == {"first"}


async def test_it_is_not_ready_until_everything_is_read_again(restored, monkeypatch):
    """Nor does it make changes before, because they may rest on what is lost; asked for one, it reads first."""
    with pytest.raises(RegistryRewound):
        await restored.publish("refused")
    snapshot = restored.registry.snapshot

    async def go_away(since: Position | None = None) -> RegistrySnapshot:
        if since is None:
            raise RegistryError("it went away")
        return await snapshot(since)

    monkeypatch.setattr(restored.registry, "snapshot", go_away)
    with pytest.raises(RegistryError, match="it went away"):
        await restored.sync.catch_up()
    with pytest.raises(NotReady, match="the server reads its registry again"):
        restored.sync.require_current()
    monkeypatch.undo()
    await restored.sync.require_present()
    restored.sync.require_current()
    assert names_in(restored.catalog) == {"first", "new"}
