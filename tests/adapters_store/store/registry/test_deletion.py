"""What a deletion removes, what it leaves, and how long it can be undone."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry import AdapterUnknown, Registry, RegistryConflict, VersionUnknown

from tests.adapters_store.store.registry.conftest import publish


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


async def test_an_undeleted_version_is_what_it_was(registry: Registry) -> None:
    """Its number, its bytes and its marks come back; doing it twice changes nothing."""
    version, _ = await publish(registry, b"one")
    await registry.deprecate("acme", "sst2", 1, "old data", actor="ann")
    deprecated = (await registry.versions())[0]
    await registry.delete_adapter("acme", "sst2", actor="ann")
    assert await registry.versions() == []
    for _ in range(2):
        assert await registry.undelete("acme", "sst2", 1, actor="ann") == deprecated
    assert await registry.versions() == [deprecated]
    assert replace(deprecated, deprecated_at=None, deprecation=None) == version


async def test_a_version_is_not_undeleted_beside_its_own_bytes(registry: Registry) -> None:
    """Bytes that were published anew are live under the new number, and the error says which."""
    await publish(registry, b"one")
    await registry.delete_version("acme", "sst2", 1, actor="ann")
    assert (await publish(registry, b"one"))[0].number == 2
    with pytest.raises(RegistryConflict, match=r"version 1 of adapter 'sst2' are live as version 2$"):
        await registry.undelete("acme", "sst2", 1, actor="ann")


async def test_purging_ends_what_was_deleted_before_and_nothing_else(registry: Registry) -> None:
    """A version within its grace period stays, one that is over is gone, and its number stays taken."""
    await publish(registry, b"one")
    await publish(registry, b"two")
    kept, _ = await publish(registry, b"three")
    await registry.delete_version("acme", "sst2", 1, actor="ann")
    between = datetime.now(UTC)
    await registry.delete_version("acme", "sst2", 2, actor="ann")
    assert await registry.purge(between, actor="gc") == {digest_of(b"one")}
    with pytest.raises(VersionUnknown, match=r"no version 1 to undelete: .* its grace period is over$"):
        await registry.undelete("acme", "sst2", 1, actor="ann")
    assert (await registry.undelete("acme", "sst2", 2, actor="ann")).number == 2
    await registry.delete_adapter("acme", "sst2", actor="ann")
    await registry.purge(datetime.now(UTC) + timedelta(seconds=1), actor="gc")
    assert (await publish(registry, b"one"))[0].number == kept.number + 1


async def test_a_version_that_an_alias_names_is_not_deleted(registry: Registry) -> None:
    """Callers of the alias keep an answer; deleting the whole adapter deletes its aliases."""
    await publish(registry, b"one")
    await publish(registry, b"two")
    await registry.set_alias("acme", "sst2", "production", {1: 0.5, 2: 0.5}, actor="ann")
    with pytest.raises(RegistryConflict, match=r"^version 2 of adapter 'sst2' is in use by its alias 'production'"):
        await registry.delete_version("acme", "sst2", 2, actor="ann")
    assert await registry.delete_adapter("acme", "sst2", actor="ann") == 2
    await publish(registry, b"three")
    assert (await registry.snapshot()).adapters[0].aliases == ()


async def test_a_name_that_is_taken_up_again_is_private(registry: Registry) -> None:
    """That an adapter was public once says nothing of the next one of its name."""
    await publish(registry, b"one")
    await registry.set_public("acme", "sst2", True, actor="ann")
    await registry.delete_version("acme", "sst2", 1, actor="ann")
    await publish(registry, b"two")
    assert not (await registry.snapshot()).adapters[0].is_public
