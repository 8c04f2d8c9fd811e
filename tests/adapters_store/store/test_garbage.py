import asyncio
import os
import random
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from peltier_store import garbage
from peltier_store.blobs import blobs as store_of_blobs
from peltier_store.blobs.blobs import BlobError, Blobs, digest_of
from peltier_store.blobs.location import locate
from peltier_store.garbage import Collected, Collector
from peltier_store.registry.claims import MAX_COLLECTING
from peltier_store.registry.errors import BlobBusy
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.tables import ReservationRow
from sqlalchemy import update

from tests.adapters_store.store.conftest import Old, opened, upload

TENANT = "default"


@pytest.fixture
async def registry(new_url):
    async with opened(new_url) as registry:
        yield registry


@pytest.fixture
def blobs(location: str) -> Blobs:
    """An empty store of each kind in turn."""
    return Old.open(location)


class Slow(Old):
    """A store that waits before it puts and longer before it deletes, so that whatever can come between does."""

    async def put(self, data: bytes) -> str:
        await asyncio.sleep(random.random() * 0.02)
        return await super().put(data)

    async def delete(self, digest: str) -> None:
        await asyncio.sleep(random.random() * 0.1)
        await super().delete(digest)


async def upload_again(registry, blobs, data, name):
    """What a server does with new bytes; one that meets a collector begins anew."""
    while True:
        try:
            return await upload(registry, blobs, data, name=name)
        except BlobBusy:
            await asyncio.sleep(0.005)


async def break_off(registry: Registry, blobs: Blobs, data: bytes) -> None:
    """What a server that is killed between the bytes and the record leaves."""
    try:
        await registry.reserve(digest_of(data))
    except BlobBusy:
        return
    await blobs.put(data)


async def expire_reservations(registry: Registry) -> None:
    """An hour passes for all uploads that are on their way."""
    past = datetime.now(UTC) - timedelta(seconds=1)
    await registry._transactions.write(
        "", lambda writing: writing.connection.execute(update(ReservationRow).values(expires_at=past))
    )


async def stored(blobs: Blobs) -> set[str]:
    return {entry.digest async for entry in blobs.entries()}


async def test_only_blobs_that_nothing_needs_go(registry: Registry, blobs: Blobs) -> None:
    """Live and deleted versions and running uploads keep their bytes; the rest is deleted and counted."""
    for data in (b"live", b"deleted"):
        await upload(registry, blobs, data)
    await registry.delete_version(TENANT, "demo", 2, actor="test")
    await break_off(registry, blobs, b"on its way")
    await blobs.put(b"orphan")
    assert await Collector(registry, blobs).run() == Collected(num_kept=3, num_deleted=1, deleted_bytes=6)
    assert await stored(blobs) == {digest_of(data) for data in (b"live", b"deleted", b"on its way")}
    await expire_reservations(registry)
    assert await registry.purge(timedelta(0), actor="test") == {digest_of(b"deleted")}
    assert await Collector(registry, blobs).run() == Collected(num_kept=1, num_deleted=2, deleted_bytes=17)
    assert await stored(blobs) == {digest_of(b"live")}


async def test_young_blobs_stay(registry: Registry, tmp_path: Path) -> None:
    """Blobs younger than two hours stay, for any content of the registry."""
    blobs = Blobs.open(tmp_path / "blobs")
    for data, hours in ((b"young", 1.9), (b"old", 2.1)):
        digest = await blobs.put(data)
        then = (datetime.now(UTC) - timedelta(hours=hours)).timestamp()
        os.utime(tmp_path / "blobs" / digest.replace(":", "/"), (then, then))
    assert await Collector(registry, blobs).run() == Collected(num_kept=1, num_deleted=1, deleted_bytes=3)
    assert await stored(blobs) == {digest_of(b"young")}


@pytest.mark.parametrize("location", ["directory", pytest.param("bucket", marks=pytest.mark.slow)], indirect=True)
async def test_no_acknowledged_version_ever_loses_its_bytes(registry, new_url, location):
    """Uploads of the same few bytes, interrupted uploads, deletions, purges and two collectors run at once on two
    replicas: published bytes always exist, and in the end no others do."""
    blobs = Slow.open(location)
    contents = [b"%d" % number for number in range(12)]
    running, checked, changed = True, 0, asyncio.Event()

    async def publish(replica, worker):
        nonlocal checked
        choose = random.Random(worker)
        for _ in range(8):
            data, name = choose.choice(contents), f"worker-{worker}"
            changed.set()
            if choose.random() < 0.2:
                await break_off(replica, blobs, data)
                await expire_reservations(replica)
                continue
            await upload_again(replica, blobs, data, name)
            await asyncio.sleep(choose.random() * 0.02)
            assert await blobs.get(digest_of(data)) == data
            checked += 1
            await replica.delete_adapter(TENANT, name, actor="test")
            await replica.purge(timedelta(0), actor="test")

    async def collect(replica):
        done = Collected()
        while running:
            await changed.wait()
            changed.clear()
            done += await Collector(replica, blobs).run()
        return done

    async with opened(new_url) as other:
        collectors = [asyncio.create_task(collect(replica)) for replica in (registry, other)]
        uploads = (publish(replica, worker) for worker, replica in enumerate([registry, other] * 4))
        await asyncio.gather(*uploads)
        running = False
        changed.set()
        done = sum(await asyncio.gather(*collectors), start=Collected())
    assert checked > 30
    assert done.num_deleted > 5
    await upload_again(registry, blobs, b"last", "demo")
    await expire_reservations(registry)
    await Collector(registry, blobs).run()
    assert await stored(blobs) == await registry.digests() == {digest_of(b"last")}


async def test_a_deletion_of_unknown_outcome_keeps_its_claim(registry: Registry, tmp_path: Path) -> None:
    """A silent store may still delete the blob, so uploads of the same bytes are refused."""

    class Silent(Old):
        async def delete(self, digest: str) -> None:
            if digest == digest_of(b"one"):
                raise BlobError("the store does not answer")
            await super().delete(digest)

    blobs = Silent.open(tmp_path / "blobs")
    for data in (b"one", b"two"):
        await blobs.put(data)
    assert await Collector(registry, blobs).run() == Collected(num_deleted=1, deleted_bytes=3, num_failed=1)
    with pytest.raises(BlobBusy):
        await registry.reserve(digest_of(b"one"))
    await registry.reserve(digest_of(b"two"))


async def test_a_cancelled_collection_keeps_no_claims(registry, tmp_path, monkeypatch):
    """Running deletions are finished, no other begins, and all of the bytes can be stored again at once."""
    monkeypatch.setattr(garbage, "_MAX_STOPPING_SECONDS", 60.0)
    begun, goes_on = asyncio.Event(), asyncio.Event()

    class Lasting(Old):
        async def delete(self, digest: str) -> None:
            begun.set()
            await goes_on.wait()
            await super().delete(digest)

    blobs = Lasting.open(tmp_path / "blobs")
    digests = [await blobs.put(b"%d" % number) for number in range(40)]
    collection = asyncio.create_task(Collector(registry, blobs).run())
    await begun.wait()
    collection.cancel()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await collection
    assert len(await stored(blobs)) == 24
    for digest in digests:
        await registry.reserve(digest)


@pytest.fixture
def watch(monkeypatch):
    """A collector's watch, which stands still but for what the test adds."""
    watch = SimpleNamespace(seconds=0.0, monotonic=lambda: watch.seconds)
    monkeypatch.setattr(garbage, "time", watch)
    return watch


async def test_a_collector_whose_time_is_over_deletes_nothing_more(registry, tmp_path, watch):
    """It releases its claims long before others may store bytes that it has claimed."""

    class Tired(Old):
        async def delete(self, digest: str) -> None:
            watch.seconds += MAX_COLLECTING.total_seconds() / 2 + 1
            await super().delete(digest)

    blobs = Tired.open(tmp_path / "blobs")
    digests = [await blobs.put(b"%d" % number) for number in range(40)]
    done = await Collector(registry, blobs).run()
    assert (done.num_kept, done.num_deleted, done.num_failed) == (38, 2, 0)
    assert len(await stored(blobs)) == 38
    for digest in digests:
        await registry.reserve(digest)


async def test_the_time_that_the_registry_takes_is_the_collectors(registry, tmp_path, watch, monkeypatch):
    """The deadline counts from the request to the registry, not from its answer."""
    begin_collection = registry.begin_collection

    async def take_long(digests: Iterable[str]) -> set[str]:
        free = await begin_collection(digests)
        watch.seconds += MAX_COLLECTING.total_seconds() + 1
        return free

    monkeypatch.setattr(registry, "begin_collection", take_long)
    blobs = Old.open(tmp_path / "blobs")
    digest = await blobs.put(b"orphan")
    assert await Collector(registry, blobs).run() == Collected(num_kept=1)
    await registry.reserve(digest)


async def test_the_age_of_a_blob_goes_by_the_clock_of_the_registry(registry: Registry, tmp_path: Path) -> None:
    """That of this machine is three hours ahead, and no position was read before."""
    registry._transactions._clock = datetime.now(UTC) + timedelta(hours=3), time.monotonic()
    blobs = Blobs.open(tmp_path / "blobs")
    await blobs.put(b"young")
    assert await Collector(registry, blobs).run() == Collected(num_kept=1)


async def test_remains_of_killed_puts_are_removed_when_they_are_old(registry: Registry, tmp_path: Path) -> None:
    """An old partial file is removed; a recent one and every whole blob stay."""
    blobs = Blobs.open(tmp_path / "blobs")
    await upload(registry, blobs, b"live")
    young, old = ((tmp_path / "blobs" / "sha256" / f"{digit * 64}#1") for digit in "ab")
    for path in (young, old):
        path.write_bytes(b"half")
    long_ago = (datetime.now(UTC) - timedelta(days=1)).timestamp()
    os.utime(old, (long_ago, long_ago))
    assert await Collector(registry, blobs).run() == Collected(num_kept=1, num_partial_files=1)
    assert (young.exists(), old.exists()) == (True, False)


@pytest.mark.parametrize("num_blobs", [25, pytest.param(2500, marks=pytest.mark.slow)])
async def test_more_blobs_than_a_page_are_collected(registry, tmp_path, monkeypatch, num_blobs):
    """Of many blobs the two that are needed stay; pages of the list and batches of digests are smaller for a few."""
    if num_blobs < garbage._BATCH:
        monkeypatch.setattr(store_of_blobs, "_PAGE", 10)
        monkeypatch.setattr(garbage, "_BATCH", 5)
    blobs = Old.open(tmp_path / "blobs")
    store = locate(tmp_path / "blobs").store
    for number in range(num_blobs - 2):
        store.put(digest_of(b"%d" % number).replace(":", "/"), b"%d" % number)
    for data in (b"live", b"also live"):
        await upload(registry, blobs, data)
    done = await Collector(registry, blobs).run()
    assert (done.num_kept, done.num_deleted) == (2, num_blobs - 2)
    assert await stored(blobs) == await registry.digests()
