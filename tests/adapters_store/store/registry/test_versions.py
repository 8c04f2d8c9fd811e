"""The life of a version: its number, its marks, and what a deletion removes, leaves and allows to undo."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from peltier_client.protocol.adapters import AdapterPin
from peltier_client.protocol.administration import TenantQuotas
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry.errors import (
    AdapterUnknown,
    InvalidRecord,
    QuotaReached,
    RegistryConflict,
    VersionUnknown,
)
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.records import VersionRecord
from peltier_store.registry.tables import VersionRow
from peltier_store.registry.transactions import WriteTransaction
from sqlalchemy import update

from tests.adapters_store.store.conftest import opened
from tests.adapters_store.store.registry.conftest import publish

REPORT = '{"name": "é \\u0000"}'


async def test_a_version_says_what_was_published(registry: Registry) -> None:
    """The first version has number 1, all fields as given, and its time in UTC."""
    before = datetime.now(UTC)
    version, created = await publish(registry, b"one")
    assert created
    assert before <= version.created_at <= datetime.now(UTC)
    expected = VersionRecord(
        "acme", "sst2", 1, digest_of(b"one"), 3, "compacter", '{"name": "é"}', version.created_at, "ann"
    )
    assert version == expected
    assert await registry.versions() == [expected]


async def test_publishing_the_same_bytes_again_is_the_same_version(registry: Registry) -> None:
    """A repeated upload returns the version that has these bytes, even if newer versions exist."""
    first, _ = await publish(registry, b"one")
    await publish(registry, b"two")
    assert await publish(registry, b"one") == (first, False)
    assert len(await registry.versions()) == 2


async def test_names_and_tenants_are_numbered_apart(registry: Registry) -> None:
    """The same bytes under another name, or in another tenant, become the first version of that adapter."""
    for tenant, name in [("acme", "sst2"), ("acme", "trec"), ("zenith", "sst2")]:
        version, created = await publish(registry, b"one", tenant=tenant, name=name)
        assert created
        assert version.number == 1
    listed = [(version.tenant, version.name) for version in await registry.versions()]
    assert listed == [("acme", "sst2"), ("acme", "trec"), ("zenith", "sst2")]


async def test_concurrent_publishes_of_the_same_bytes_make_one_version(registry: Registry, url: str) -> None:
    """Callers without a common connection all get the same version, and exactly one of them created it."""
    async with opened(url) as other:
        results = await asyncio.gather(*(publish(one, b"one") for one in [registry, other] * 10))
    assert sorted(created for _, created in results) == [False] * 19 + [True]
    assert len({version for version, _ in results}) == 1


async def test_concurrent_publishes_of_different_bytes_get_different_numbers(registry: Registry, url: str) -> None:
    """The numbers have no gaps and no duplicates."""
    async with opened(url) as other:
        uploads = (publish(one, bytes([index])) for index, one in enumerate([registry, other] * 10))
        results = await asyncio.gather(*uploads)
    assert sorted(version.number for version, _ in results) == list(range(1, 21))
    assert len(await registry.versions()) == 20


async def test_an_alias_names_a_version_from_the_moment_it_is_live(registry: Registry) -> None:
    """One transaction does both: an invalid alias creates no version. An alias may also name bytes that are already
    live."""
    given = {"size_bytes": 3, "preset": "lora", "manifest": "{}", "actor": "ann"}
    seen = await registry.position()
    reservation = await registry.reserve(digest_of(b"one"))
    with pytest.raises(InvalidRecord, match="the alias '7' looks like a version number"):
        await registry.publish("acme", "a", reservation, alias="7", **given)
    assert await registry.versions() == []
    await registry.publish("acme", "a", reservation, alias="live", **given)
    assert (await registry.position()).revision == seen.revision + 2
    await publish(registry, b"two", name="a")
    again = await registry.reserve(digest_of(b"one"))
    assert not (await registry.publish("acme", "a", again, alias="canary", **given))[1]
    (adapter,) = (await registry.snapshot()).adapters
    assert {alias.alias: alias.split for alias in adapter.aliases} == {"live": {1: 1.0}, "canary": {1: 1.0}}


async def test_a_deprecated_version_is_live_and_says_why(registry: Registry) -> None:
    """A second reason replaces the first, and None removes the mark."""
    version, _ = await publish(registry, b"one")
    for reason in ("old data", "a bug"):
        deprecated = await registry.deprecate("acme", "sst2", 1, reason, actor="ann")
        assert (deprecated.deprecation, deprecated.deprecated_at is None) == (reason, False)
        assert await registry.versions() == [deprecated]
    assert await registry.deprecate("acme", "sst2", 1, None, actor="ann") == version
    assert await registry.versions() == [version]


async def test_only_what_is_live_is_marked(registry: Registry) -> None:
    """A deleted version cannot be deprecated, and a deleted adapter can be neither made public nor pinned."""
    await publish(registry, b"one")
    await publish(registry, b"two")
    await registry.delete_version("acme", "sst2", 1, actor="ann")
    with pytest.raises(VersionUnknown):
        await registry.deprecate("acme", "sst2", 1, "old", actor="ann")
    await registry.delete_adapter("acme", "sst2", actor="ann")
    with pytest.raises(AdapterUnknown):
        await registry.set_public("acme", "sst2", True, actor="ann")
    with pytest.raises(AdapterUnknown):
        await registry.pin("acme", "sst2", actor="ann")


async def test_a_reason_is_text_that_can_be_kept(registry: Registry) -> None:
    """Both databases refuse text that one of them cannot store."""
    await publish(registry, b"one")
    with pytest.raises(InvalidRecord, match="the reason"):
        await registry.deprecate("acme", "sst2", 1, "a\0b", actor="ann")
    assert (await registry.deprecate("acme", "sst2", 1, "naïve 🙂", actor="ann")).deprecation == "naïve 🙂"


async def test_a_deleted_number_is_never_given_out_again(registry: Registry) -> None:
    """Neither a deletion of the newest version nor of the adapter frees a number, even for the same bytes."""
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
    """Other versions of the adapter and adapters of other tenants stay."""
    await publish(registry, b"one")
    kept, _ = await publish(registry, b"two")
    other, _ = await publish(registry, b"one", tenant="zenith")
    await registry.delete_version("acme", "sst2", 1, actor="ann")
    assert await registry.versions() == [kept, other]
    await registry.delete_adapter("acme", "sst2", actor="ann")
    assert await registry.versions() == [other]


async def test_deleting_what_is_not_there_says_so(registry: Registry) -> None:
    """The class and the sentence of the error say whether the adapter or the version is unknown."""
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
    assert await registry.purge(timedelta(0), actor="gc") == {digest_of(b"two")}
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
    """The error names the live version that has the same bytes."""
    await publish(registry, b"one")
    await registry.delete_version("acme", "sst2", 1, actor="ann")
    assert (await publish(registry, b"one"))[0].number == 2
    with pytest.raises(RegistryConflict, match=r"version 1 of adapter 'sst2' are live as version 2$"):
        await registry.undelete("acme", "sst2", 1, actor="ann")


async def test_purging_ends_what_was_deleted_before_and_nothing_else(registry: Registry) -> None:
    """A version within its grace period stays. A purged version is gone, and its number is not reused."""
    await publish(registry, b"one")
    await publish(registry, b"two")
    kept, _ = await publish(registry, b"three")
    await registry.delete_version("acme", "sst2", 1, actor="ann")
    await registry._transactions.write("ann", _delete_an_hour_earlier)
    await registry.delete_version("acme", "sst2", 2, actor="ann")
    assert await registry.purge(timedelta(minutes=30), actor="gc") == {digest_of(b"one")}
    with pytest.raises(VersionUnknown, match=r"no version 1 to undelete: .* its grace period is over$"):
        await registry.undelete("acme", "sst2", 1, actor="ann")
    assert (await registry.undelete("acme", "sst2", 2, actor="ann")).number == 2
    await registry.delete_adapter("acme", "sst2", actor="ann")
    await registry.purge(timedelta(seconds=-1), actor="gc")
    assert (await publish(registry, b"one"))[0].number == kept.number + 1


def _delete_an_hour_earlier(writing: WriteTransaction) -> None:
    """Of the versions that are deleted by now."""
    deleted = update(VersionRow).where(VersionRow.deleted_at.is_not(None))
    writing.connection.execute(deleted.values(deleted_at=writing.at - timedelta(hours=1)))


async def test_a_version_that_an_alias_names_is_not_deleted(registry: Registry) -> None:
    """Callers of the alias still get answers. Deleting the whole adapter deletes its aliases."""
    await publish(registry, b"one")
    await publish(registry, b"two")
    await registry.set_alias("acme", "sst2", "production", {1: 0.5, 2: 0.5}, actor="ann")
    with pytest.raises(RegistryConflict, match=r"^version 2 of adapter 'sst2' is in use by its alias 'production'"):
        await registry.delete_version("acme", "sst2", 2, actor="ann")
    assert await registry.delete_adapter("acme", "sst2", actor="ann") == 2
    await publish(registry, b"three")
    assert (await registry.snapshot()).adapters[0].aliases == ()


async def test_an_adapter_is_private_until_it_is_opened(registry: Registry) -> None:
    """It is private again after it is closed, and if its name is that of a deleted adapter that was public."""
    await publish(registry, b"one")
    for public in (False, True, False, True):
        await registry.set_public("acme", "sst2", public, actor="ann")
        assert [adapter.is_public for adapter in (await registry.snapshot()).adapters] == [public]
    await registry.delete_version("acme", "sst2", 1, actor="ann")
    await publish(registry, b"two")
    assert not (await registry.snapshot()).adapters[0].is_public


async def test_a_report_belongs_to_one_version(registry: Registry) -> None:
    """Of one tenant, adapter and number; a version without one has none."""
    await publish(registry, b"1", report=REPORT)
    await publish(registry, b"2")
    await publish(registry, b"1", tenant="zenith")
    assert await registry.report("acme", "sst2", 1) == REPORT
    for tenant, number in (("acme", 2), ("acme", 3), ("zenith", 1)):
        assert await registry.report(tenant, "sst2", number) is None


async def test_the_last_report_of_the_same_bytes_is_kept(registry: Registry) -> None:
    """An upload without one keeps the report. Only a change of a version is in the audit log."""
    for report in (None, "{}", "{}", REPORT, None):
        version, _ = await publish(registry, b"1", report=report)
        assert version.number == 1
    assert await registry.report("acme", "sst2", 1) == REPORT
    changes = [entry.subject for entry in await registry.audit() if entry.action == "set_report"]
    assert changes == ["sst2@1", "sst2@1"]


async def test_a_report_counts_for_the_quota(registry: Registry) -> None:
    """In bytes of UTF-8, and as the difference to the report that it replaces; a refused one changes nothing."""
    size = len(REPORT.encode())
    await registry.update_tenant("acme", TenantQuotas(max_stored_bytes=1 + size), actor="operator")
    await publish(registry, b"1", report=REPORT)
    assert (await registry.usage("acme")).stored_bytes == 1 + size
    with pytest.raises(QuotaReached, match=r"so 1 more do not fit"):
        await publish(registry, b"1", report=f"{REPORT} ")
    assert await registry.report("acme", "sst2", 1) == REPORT
    await publish(registry, b"1", report="{}")
    with pytest.raises(QuotaReached):
        await publish(registry, b"2", report=REPORT)
    assert await registry.find("acme", "sst2", 2) is None


async def test_a_report_ends_with_its_version(registry: Registry) -> None:
    """A deleted version keeps its report until it is purged."""
    await publish(registry, b"1", report=REPORT)
    await registry.delete_version("acme", "sst2", 1, actor="ann")
    assert await registry.report("acme", "sst2", 1) == REPORT
    await registry.purge(timedelta(seconds=-1), actor="gc")
    assert await registry.report("acme", "sst2", 1) is None
    assert (await registry.usage("acme")).stored_bytes == 0


async def _pin_of(registry: Registry, name: str = "sst2") -> AdapterPin | None:
    (record,) = [one for one in (await registry.snapshot()).adapters if (one.tenant, one.name) == ("acme", name)]
    return record.pin


async def test_a_pin_is_part_of_its_adapter(registry: Registry) -> None:
    """Replicas read it with the adapter, its time and its actor; a second pin changes nothing, a release removes it."""
    await publish(registry, b"1")
    since = await registry.position()
    made = await registry.pin("acme", "sst2", actor="ann")
    (changed,) = (await registry.snapshot(since)).adapters
    assert changed.pin == made == AdapterPin(pinned_at=made.pinned_at, pinned_by="ann")
    assert await registry.pin("acme", "sst2", actor="bob") == made
    for _ in range(2):
        await registry.unpin("acme", "sst2", actor="bob")
    assert await _pin_of(registry) is None
    assert [entry.action for entry in await registry.audit(limit=3)] == ["unpin", "pin", "publish"]


async def test_a_pin_ends_with_its_adapter(registry: Registry) -> None:
    """The deletion of the last version releases it, and an undeletion does not pin again."""
    await publish(registry, b"1")
    await registry.pin("acme", "sst2", actor="ann")
    await registry.delete_adapter("acme", "sst2", actor="ann")
    await registry.undelete("acme", "sst2", 1, actor="ann")
    assert await _pin_of(registry) is None
