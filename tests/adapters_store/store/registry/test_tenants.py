"""Tenants and their quotas, which are enforced in the transaction that stores."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from peltier_client.protocol.administration import TenantQuotas
from peltier_store.registry.errors import InvalidRecord, KeyUnknown, QuotaReached, RegistryConflict, TenantUnknown
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.records import Key

from tests.adapters_store.store.conftest import opened
from tests.adapters_store.store.registry.conftest import publish

QUOTAS = TenantQuotas(requests_per_second=10.5, max_stored_bytes=2**40, weight=2.0)


async def test_quotas_are_kept_as_given(registry: Registry) -> None:
    """The first quotas are recorded, and an update replaces all of them."""
    made = await registry.create_tenant("umbra", QUOTAS, actor="operator")
    assert made in (await registry.snapshot()).tenants
    await registry.update_tenant("umbra", TenantQuotas(max_adapters=0), actor="operator")
    (updated,) = [tenant for tenant in (await registry.snapshot()).tenants if tenant.name == "umbra"]
    assert updated.quotas == TenantQuotas(max_adapters=0)
    assert updated.created_at == made.created_at


async def test_a_quota_out_of_range_is_read_and_replaced(registry: Registry) -> None:
    """As after a change of the database by hand: the registry still opens, and the other tenants are served."""
    wrong = TenantQuotas.model_construct(requests_per_second=-1.0, weight=0.0)
    await registry.create_tenant("umbra", wrong, actor="operator")
    assert {tenant.name: tenant.quotas for tenant in (await registry.snapshot()).tenants}["umbra"] == wrong
    await registry.update_tenant("umbra", QUOTAS, actor="operator")
    assert {tenant.name: tenant.quotas for tenant in (await registry.snapshot()).tenants}["umbra"] == QUOTAS


async def test_a_tenant_is_made_once(registry: Registry) -> None:
    with pytest.raises(RegistryConflict, match=r"^tenant 'acme' exists already$"):
        await registry.create_tenant("acme", actor="operator")
    with pytest.raises(TenantUnknown, match=r"^tenant 'umbra' does not exist$"):
        await registry.update_tenant("umbra", TenantQuotas(), actor="operator")


@pytest.mark.parametrize("name", ["", "Acme", "-a", "a b", "a\n", "ä", "a" * 64, "a:b"])
async def test_a_bad_name_is_refused(registry: Registry, name: str) -> None:
    """Names of tenants follow the rule of adapters' names, because both occur in references."""
    with pytest.raises(
        InvalidRecord, match=r"(?s)^the tenant '.*' is invalid: it must have at most 63 lower-case letters"
    ):
        await registry.create_tenant(name, actor="operator")


async def limit(registry: Registry, quotas: TenantQuotas) -> None:
    await registry.update_tenant("acme", quotas, actor="operator")


async def test_a_tenant_has_as_many_adapters_as_it_may(registry: Registry) -> None:
    """Versions of one adapter count once; a deleted adapter frees its place, and an undelete needs a free place."""
    await limit(registry, TenantQuotas(max_adapters=1))
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
    """A version that shares its bytes counts too, so that no tenant can fill the registry with records of one file."""
    await limit(registry, TenantQuotas(max_stored_bytes=12))
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
    await registry.purge(timedelta(seconds=-1), actor="gc")
    await publish(registry, b"12345", name="b")
    with pytest.raises(QuotaReached):
        await publish(registry, b"1")


async def test_a_refused_upload_leaves_nothing(registry: Registry) -> None:
    """It takes no version number and has no entry in the audit log."""
    await limit(registry, TenantQuotas(max_stored_bytes=0))
    with pytest.raises(QuotaReached):
        await publish(registry, b"one")
    await limit(registry, TenantQuotas())
    assert [entry.action for entry in await registry.audit(limit=2)] == ["update_tenant", "update_tenant"]
    assert (await publish(registry, b"one"))[0].number == 1


async def test_what_would_be_refused_is_known_before_it_is_stored(registry: Registry) -> None:
    """Bytes that are already live are not refused, because publishing them again takes no space."""
    version, _ = await publish(registry, b"one")
    await limit(registry, TenantQuotas(max_stored_bytes=0, max_adapters=1))
    await registry.require_room("acme", "sst2", digest=version.digest, size_bytes=3)
    with pytest.raises(QuotaReached, match="4 more do not fit"):
        await registry.require_room("acme", "sst2", digest="sha256:0", size_bytes=4)
    with pytest.raises(QuotaReached, match="has 1 adapters"):
        await registry.require_room("acme", "b", digest=version.digest, size_bytes=3)


async def test_uploads_at_the_same_moment_do_not_pass_a_quota_together(registry: Registry, url: str) -> None:
    """Of many concurrent uploads through two replicas, exactly as many succeed as the quota allows."""
    await limit(registry, TenantQuotas(max_adapters=3))
    async with opened(url) as other:
        uploads = (publish(one, b"x", name=f"a{number}") for number, one in enumerate([registry, other] * 5))
        results = await asyncio.gather(*uploads, return_exceptions=True)
    assert sorted(isinstance(result, QuotaReached) for result in results) == [False] * 3 + [True] * 7
    assert len(await registry.versions()) == 3


async def create_key(registry: Registry, tenant: str = "acme", prefix: str = "abcd1234", **given: Any) -> Key:
    values = {"digest": "00ff", "scopes": {"predict", "publish"}, "note": "Ann's", **given}
    return await registry.create_key(tenant, prefix=prefix, actor="operator", **values)


async def test_a_key_is_kept_as_given(registry: Registry) -> None:
    """It is listed with its tenant, in the order of creation; logs do not show its digest."""
    expires_at = datetime.now(UTC) + timedelta(days=1)
    first = await create_key(registry, expires_at=expires_at)
    second = await create_key(registry, "zenith", "wxyz1234", scopes={"admin"})
    assert (await registry.snapshot()).keys == (first, second)
    assert first.scopes == {"predict", "publish"}
    assert (first.tenant, first.note, first.created_by, first.expires_at) == ("acme", "Ann's", "operator", expires_at)
    assert "00ff" not in repr(first)


async def test_a_revoked_key_stays_revoked(registry: Registry) -> None:
    """A second revocation does not change the time of the first."""
    await create_key(registry)
    revoked = await registry.revoke_key("abcd1234", actor="operator")
    assert revoked.revoked_at is not None
    assert await registry.revoke_key("abcd1234", actor="operator") == revoked
    assert (await registry.snapshot()).keys == (revoked,)
    with pytest.raises(KeyUnknown, match=r"^no key has the prefix 'nobodys1'$"):
        await registry.revoke_key("nobodys1", actor="operator")


async def test_a_prefix_belongs_to_one_key(registry: Registry) -> None:
    """Another tenant cannot use it either, nor can it be reused after a revocation."""
    await create_key(registry)
    await registry.revoke_key("abcd1234", actor="operator")
    with pytest.raises(RegistryConflict, match=r"^a key with the prefix 'abcd1234' exists already$"):
        await create_key(registry, "zenith")


@pytest.mark.parametrize("scopes", [set(), {"root"}, {"predict", "Publish"}])
async def test_scopes_are_those_that_there_are(registry: Registry, scopes: set[str]) -> None:
    """A key has at least one scope, and only known scopes."""
    with pytest.raises(
        InvalidRecord, match=r"are invalid: give one or more of admin, metrics, predict, publish, train$"
    ):
        await create_key(registry, scopes=scopes)


async def test_a_key_needs_its_tenant_and_text_that_can_be_kept(registry: Registry) -> None:
    """PostgreSQL cannot store zero bytes, and neither database can store lone surrogates."""
    with pytest.raises(TenantUnknown):
        await create_key(registry, "nobody")
    for note in ("a\0b", "a\ud800b"):
        with pytest.raises(InvalidRecord, match=r"^the note 'a.*b' contains a zero byte or a lone surrogate$"):
            await create_key(registry, note=note)
    assert (await registry.snapshot()).keys == ()
