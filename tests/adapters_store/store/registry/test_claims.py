"""Bytes of a running upload are never collected, and bytes in collection are never published."""

from datetime import timedelta

import pytest
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry import claims
from peltier_store.registry.errors import BlobBusy
from peltier_store.registry.extensions.registry import Registry

from tests.adapters_store.store.conftest import opened
from tests.adapters_store.store.registry.conftest import publish

ONE, TWO = digest_of(b"one"), digest_of(b"two")
GIVEN = {"size_bytes": 3, "preset": "lora", "manifest": "{}", "actor": "ann"}


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
    await registry.publish("acme", "a", first, **GIVEN)
    await registry.publish("acme", "b", second, **GIVEN)
    released = await registry.reserve(ONE)
    for _ in range(2):
        await registry.release(released)
    for gone in (first, released):
        with pytest.raises(BlobBusy, match=r"its bytes may be gone; upload it again$"):
            await registry.publish("acme", "c", gone, **GIVEN)
    assert [version.name for version in await registry.versions()] == ["a", "b"]


async def test_a_refused_upload_keeps_its_reservation(registry: Registry) -> None:
    """It can be tried again with the bytes that are already stored."""
    reservation = await registry.reserve(ONE)
    with pytest.raises(Exception, match="tenant 'nobody' does not exist"):
        await registry.publish("nobody", "a", reservation, **GIVEN)
    assert await registry.begin_collection([ONE]) == set()
    await registry.publish("acme", "a", reservation, **GIVEN)


async def test_an_expired_reservation_holds_until_its_bytes_are_wanted(registry, monkeypatch):
    """A late upload succeeds unless a collector has claimed its bytes meanwhile."""
    monkeypatch.setattr(claims, "_RESERVED", timedelta(0))
    await registry.publish("acme", "a", await registry.reserve(ONE), **GIVEN)
    late = await registry.reserve(TWO)
    assert await registry.begin_collection([TWO]) == {TWO}
    with pytest.raises(BlobBusy, match="took too long"):
        await registry.publish("acme", "a", late, **GIVEN)


async def test_a_dead_collector_is_forgotten(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
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
