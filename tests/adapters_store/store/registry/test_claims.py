"""Bytes of a running upload are never collected, and bytes in collection are never published."""

import asyncio
import random
from datetime import timedelta

import pytest
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry import claims
from peltier_store.registry.errors import BlobBusy
from peltier_store.registry.extensions.registry import Registry

from tests.adapters_store.store.conftest import opened
from tests.adapters_store.store.registry.conftest import publish

ONE, TWO, THREE = (digest_of(data) for data in (b"one", b"two", b"three"))


async def test_only_what_nobody_needs_is_collectable(registry: Registry) -> None:
    """Bytes of live versions, deleted versions and running uploads are not collected."""
    await publish(registry, b"one")
    await publish(registry, b"two")
    await registry.delete_version("acme", "sst2", 2, actor="ann")
    reservation = await registry.reserve(THREE)
    garbage = digest_of(b"garbage")
    assert await registry.begin_collection([ONE, TWO, THREE, garbage]) == {garbage}
    await registry.release(reservation)
    await registry.purge(timedelta(seconds=-1), actor="gc")
    assert await registry.begin_collection([ONE, TWO, THREE, garbage]) == {TWO, THREE}


async def test_what_is_being_collected_cannot_be_reserved(registry: Registry, url: str) -> None:
    """Neither an upload nor another collector can claim it. Afterwards it can be stored like new bytes."""
    async with opened(url) as other:
        assert await registry.begin_collection([ONE]) == {ONE}
        assert await other.begin_collection([ONE]) == set()
        with pytest.raises(BlobBusy, match=rf"^the blob {ONE} is being deleted"):
            await other.reserve(ONE)
        await registry.end_collection([ONE])
        assert (await publish(other, b"one"))[0].number == 1


async def test_a_reservation_is_good_for_one_version(registry: Registry) -> None:
    """A used, released or lost reservation publishes nothing; each upload of the same bytes has its own one."""
    first, second = await registry.reserve(ONE), await registry.reserve(ONE)
    given = {"size_bytes": 3, "preset": "lora", "manifest": "{}", "actor": "ann"}
    await registry.publish("acme", "a", first, **given)
    await registry.publish("acme", "b", second, **given)
    released = await registry.reserve(ONE)
    for _ in range(2):
        await registry.release(released)
    for gone in (first, released):
        with pytest.raises(BlobBusy, match=r"its bytes may be gone; upload it again$"):
            await registry.publish("acme", "c", gone, **given)
    assert [version.name for version in await registry.versions()] == ["a", "b"]


async def test_a_refused_upload_keeps_its_reservation(registry: Registry) -> None:
    """It can be tried again with the bytes that are already stored."""
    reservation = await registry.reserve(ONE)
    given = {"size_bytes": 3, "preset": "lora", "manifest": "{}", "actor": "ann"}
    with pytest.raises(Exception, match="tenant 'nobody' does not exist"):
        await registry.publish("nobody", "a", reservation, **given)
    assert await registry.begin_collection([ONE]) == set()
    await registry.publish("acme", "a", reservation, **given)


async def test_an_expired_reservation_holds_until_its_bytes_are_wanted(registry, monkeypatch):
    """A late upload succeeds unless a collector has claimed its bytes meanwhile."""
    monkeypatch.setattr(claims, "_RESERVED", timedelta(0))
    given = {"size_bytes": 3, "preset": "lora", "manifest": "{}", "actor": "ann"}
    await registry.publish("acme", "a", await registry.reserve(ONE), **given)
    late = await registry.reserve(TWO)
    assert await registry.begin_collection([TWO]) == {TWO}
    with pytest.raises(BlobBusy, match="took too long"):
        await registry.publish("acme", "a", late, **given)


async def test_a_dead_collector_is_forgotten(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time others can store or collect the bytes that it has claimed."""
    monkeypatch.setattr(claims, "_COLLECTING", timedelta(0))
    assert await registry.begin_collection([ONE, TWO]) == {ONE, TWO}
    await publish(registry, b"one")
    assert await registry.begin_collection([ONE, TWO]) == {TWO}


async def test_many_digests_are_asked_for_at_once(registry: Registry) -> None:
    """There may be more digests than parameters in a statement."""
    await publish(registry, b"one")
    garbage = {digest_of(b"%d" % number) for number in range(2500)}
    assert await registry.begin_collection(garbage | {ONE}) == garbage
    await registry.end_collection(garbage)
    assert await registry.begin_collection(garbage) == garbage


async def test_publishing_and_collecting_at_once_lose_nothing(registry: Registry, url: str) -> None:
    """Uploaders and collectors on two replicas work on the same few blobs: every live version has its bytes."""
    stored: set[str] = set()
    pause = random.Random(7)

    async def upload(replica: Registry, name: str) -> None:
        for number in range(8):
            data = b"%d" % (number % 3)
            try:
                reservation = await replica.reserve(digest_of(data))
            except BlobBusy:
                continue
            await asyncio.sleep(pause.random() / 100)
            stored.add(reservation.digest)
            await replica.publish("acme", name, reservation, size_bytes=1, preset="p", manifest="{}", actor="ann")
            assert reservation.digest in stored
            await replica.delete_adapter("acme", name, actor="ann")
            await replica.purge(timedelta(seconds=-1), actor="gc")
        await replica.publish(
            "acme", name, await reserve(replica, name), size_bytes=1, preset="p", manifest="{}", actor="ann"
        )

    async def reserve(replica: Registry, name: str) -> claims.Reservation:
        reservation = await replica.reserve(digest_of(name.encode()))
        stored.add(reservation.digest)
        return reservation

    async def collect(replica: Registry) -> None:
        for _ in range(15):
            free = await replica.begin_collection(list(stored))
            await asyncio.sleep(pause.random() / 100)
            stored.difference_update(free)
            await replica.end_collection(free)

    async with opened(url) as other:
        uploads = [upload(replica, f"a{number}") for number, replica in enumerate([registry, other] * 2)]
        await asyncio.gather(*uploads, collect(registry), collect(other))
    assert await registry.digests() <= stored
    assert len(await registry.versions()) == 4
