"""Reports of trainings, on both databases."""

from datetime import UTC, datetime, timedelta

import pytest
from peltier_store.registry import QuotaReached, Quotas, Registry

from tests.adapters_store.store.registry.conftest import publish

REPORT = '{"name": "é \\u0000"}'


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
    await registry.update_tenant("acme", Quotas(max_stored_bytes=1 + size), actor="operator")
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
    await registry.purge(datetime.now(UTC) + timedelta(seconds=1), actor="gc")
    assert await registry.report("acme", "sst2", 1) is None
    assert (await registry.usage("acme")).stored_bytes == 0
