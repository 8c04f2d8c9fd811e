"""Storage quotas are enforced in the transaction that stores."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from peltier_store.registry import QuotaReached, Quotas, Registry

from tests.adapters_store.store.registry.conftest import publish


async def limit(registry: Registry, quotas: Quotas) -> None:
    await registry.update_tenant("acme", quotas, actor="operator")


async def test_a_tenant_has_as_many_adapters_as_it_may(registry: Registry) -> None:
    """More versions of one are no more adapters, a deleted one makes room, and bringing it back needs room too."""
    await limit(registry, Quotas(max_adapters=1))
    await publish(registry, b"one", name="a")
    await publish(registry, b"two", name="a")
    with pytest.raises(QuotaReached, match=r"^tenant 'acme' has 1 adapters and may have 1; delete one first$"):
        await publish(registry, b"one", name="b")
    await publish(registry, b"one", name="b", tenant="zenith")
    await registry.delete_adapter("acme", "a", actor="ann")
    await publish(registry, b"one", name="b")
    with pytest.raises(QuotaReached, match="has 1 adapters and may have 1"):
        await registry.undelete("acme", "a", 1, actor="ann")


async def test_each_version_counts_until_it_is_purged(registry: Registry) -> None:
    """Also a version that shares its bytes, so that no tenant can fill the registry with records of one file."""
    await limit(registry, Quotas(max_stored_bytes=12))
    for name in ("a", "b"):
        await publish(registry, b"12345", name=name)
    message = (
        r"^tenant 'acme' has stored 10 bytes and may store 12, so 5 more do not fit; "
        r"deleted versions count until their grace period is over$"
    )
    await publish(registry, b"12345", name="c", tenant="zenith")
    await publish(registry, b"12345", name="a")
    for name in ("a", "b"):
        await registry.delete_adapter("acme", name, actor="ann")
    with pytest.raises(QuotaReached, match=message):
        await publish(registry, b"12345", name="a")
    await publish(registry, b"12")
    with pytest.raises(QuotaReached):
        await publish(registry, b"1")
    await registry.undelete("acme", "a", 1, actor="ann")
    await registry.purge(datetime.now(UTC) + timedelta(seconds=1), actor="gc")
    await publish(registry, b"12345", name="b")
    with pytest.raises(QuotaReached):
        await publish(registry, b"1")


async def test_a_refused_upload_leaves_nothing(registry: Registry) -> None:
    """No number is taken, and it is not in the audit log."""
    await limit(registry, Quotas(max_stored_bytes=0))
    with pytest.raises(QuotaReached):
        await publish(registry, b"one")
    await limit(registry, Quotas())
    assert [entry.action for entry in await registry.audit(limit=2)] == ["update_tenant", "update_tenant"]
    assert (await publish(registry, b"one"))[0].number == 1


async def test_what_would_be_refused_is_known_before_it_is_stored(registry: Registry) -> None:
    """And what is live already is not refused: publishing it again takes nothing."""
    version, _ = await publish(registry, b"one")
    await limit(registry, Quotas(max_stored_bytes=0, max_adapters=1))
    await registry.require_room("acme", "sst2", digest=version.digest, size_bytes=3)
    with pytest.raises(QuotaReached, match="4 more do not fit"):
        await registry.require_room("acme", "sst2", digest="sha256:0", size_bytes=4)
    with pytest.raises(QuotaReached, match="has 1 adapters"):
        await registry.require_room("acme", "b", digest=version.digest, size_bytes=3)


async def test_uploads_at_the_same_moment_do_not_pass_a_quota_together(registry: Registry, url: str) -> None:
    """Of many through two replicas, exactly as many succeed as may."""
    await limit(registry, Quotas(max_adapters=3))
    other = await Registry.open(url)
    uploads = (publish(one, b"x", name=f"a{number}") for number, one in enumerate([registry, other] * 5))
    results = await asyncio.gather(*uploads, return_exceptions=True)
    await other.close()
    assert sorted(isinstance(result, QuotaReached) for result in results) == [False] * 3 + [True] * 7
    assert len(await registry.versions()) == 3
