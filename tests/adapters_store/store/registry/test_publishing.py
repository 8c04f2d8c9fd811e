"""The numbers of versions under concurrent uploads."""

import asyncio
from datetime import UTC, datetime

import pytest
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry import InvalidRecord, Registry, TenantUnknown, Version

from tests.adapters_store.store.registry.conftest import publish


async def test_a_version_says_what_was_published(registry: Registry) -> None:
    """The first version has number 1, every field as given, and the time in UTC."""
    before = datetime.now(UTC)
    version, created = await publish(registry, b"one")
    assert created
    assert before <= version.created_at <= datetime.now(UTC)
    expected = Version("acme", "sst2", 1, digest_of(b"one"), 3, "compacter", '{"name": "é"}', version.created_at, "ann")
    assert version == expected
    assert await registry.versions() == [expected]


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


async def test_an_alias_names_a_version_from_the_moment_it_is_live(registry: Registry) -> None:
    """One transaction: a name that no alias can have makes no version either. Bytes that are live are named too."""
    given = {"size_bytes": 3, "preset": "lora", "manifest": "{}", "actor": "ann"}
    seen = await registry.revision()
    reservation = await registry.reserve(digest_of(b"one"))
    with pytest.raises(InvalidRecord, match="the alias '7' looks like a version number"):
        await registry.publish("acme", "a", reservation, alias="7", **given)
    assert await registry.versions() == []
    await registry.publish("acme", "a", reservation, alias="live", **given)
    assert await registry.revision() == seen + 2
    await publish(registry, b"two", name="a")
    again = await registry.reserve(digest_of(b"one"))
    assert not (await registry.publish("acme", "a", again, alias="canary", **given))[1]
    (adapter,) = (await registry.snapshot()).adapters
    assert {alias.alias: alias.split for alias in adapter.aliases} == {"live": {1: 1.0}, "canary": {1: 1.0}}


async def test_an_unknown_tenant_owns_nothing(registry: Registry) -> None:
    """Operators create tenants; an upload never does."""
    with pytest.raises(TenantUnknown, match=r"^tenant 'nobody' does not exist$"):
        await publish(registry, b"one", tenant="nobody")
    assert [tenant.name for tenant in (await registry.snapshot()).tenants] == ["acme", "default", "zenith"]
