"""The snapshot of one replica."""

from collections.abc import Callable

import pytest
from peltier_adapters.artifact.artifact import read_artifact
from peltier_backbone.backbone import Backbone
from peltier_client.errors import InferenceFailed
from peltier_client.protocol import LiveSnapshot
from peltier_client.resources import administration
from peltier_server.metrics.series import LabelSlots

from tests.server.conftest import Running


async def snapshot(running: Running, max_versions: int = 100) -> LiveSnapshot:
    """As the client library reads it."""
    asked = administration.live(max_versions)
    return asked.read(await running.client.get(asked.path, params=dict(asked.query)))


async def test_a_snapshot_counts_what_happened(
    running: Running, bert: Backbone, make_artifact: Callable[..., bytes]
) -> None:
    """Requests by tenant and by version, batches, the queue, uploads and tiers; the difference of two snapshots is what
    happened between them."""
    await running.upload(make_artifact(bert, name="a"))
    before = await snapshot(running)
    await running.predict("a", ["good", "bad"])
    await running.predict("missing", "bad")
    after = await snapshot(running)
    assert after.started_at == before.started_at < before.at < after.at
    assert (after.ready, after.reason, after.runner.state, after.runner.restarts) == (True, None, "well", 0)
    (tenant,) = [one for one in after.tenants if one.tenant == "default"]
    assert (tenant.requests["200"], tenant.requests["404"], tenant.queued_tokens) == (2, 1, 0)
    assert tenant.rows == sum(one.rows for one in before.tenants) + 2
    # The requests for the snapshots themselves come from the same tenant; the second is still open.
    assert sum(after.seconds.counts) == sum(before.seconds.counts) + 3
    assert [(one.adapter, one.version, one.requests) for one in after.adapters] == [("a", "1", {"200": 1})]
    assert sum(after.adapters[0].seconds.counts) == 1
    assert sum(after.batches.rows.counts) == sum(before.batches.rows.counts) + 1
    assert after.batches.rows.total == before.batches.rows.total + 2
    assert (after.queue.rows, after.queue.tokens, sum(after.queue.seconds.counts)) == (0, 0, tenant.rows)
    assert (after.uploads, after.loads) == ({"created": 1}, 1)
    assert after.lookups["device"] >= 1
    assert [(tier.tier, tier.adapters) for tier in after.tiers] == [("device", 1), ("host", 1)]
    assert all(len(one.counts) == len(one.bounds) + 1 for one in (after.seconds, after.batches.tokens))


async def test_evictions_are_those_of_the_tier(
    serve: Callable[..., object], bert: Backbone, make_artifact: Callable[..., bytes]
) -> None:
    """With room for one of two adapters."""
    artifacts = [make_artifact(bert, "lora", name=f"a{seed}", seed=seed) for seed in range(2)]
    room_for_one = int(1.5 * read_artifact(artifacts[0], bert).nbytes)
    async with serve(device_bytes=room_for_one, host_bytes=room_for_one) as running:
        for data in artifacts:
            await running.upload(data)
        device, host = (await snapshot(running)).tiers
    assert (device.adapters, device.max_bytes, device.evictions) == (1, room_for_one, 1)
    assert 0 < device.bytes <= room_for_one
    assert (host.adapters, host.evictions) == (1, 1)


async def test_the_busiest_versions_come_first_and_no_more_than_asked(
    caller: Running, bert: Backbone, make_artifact: Callable[..., bytes]
) -> None:
    """Also none at all."""
    for name, times in (("a", 1), ("b", 3), ("c", 2)):
        await caller.upload(make_artifact(bert, "bitfit", name=name))
        for _ in range(times):
            await caller.predict(name, "good")
    assert [one.adapter for one in (await snapshot(caller, 2)).adapters] == ["b", "c"]
    assert (await snapshot(caller, 0)).adapters == []
    assert (await caller.client.get("/v1/live?adapters=502")).status_code == 422


async def test_versions_turn_over_where_nothing_scrapes(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scraper keeps the last values of a series; without one, the snapshot alone follows the versions in use."""
    worths: list[float] = []
    monkeypatch.setattr(LabelSlots, "turn_over", lambda self, worth: worths.append(worth) or frozenset())
    versions = running.service.metrics.versions
    versions._turned_at -= 100
    await snapshot(running)
    assert len(worths) == 1
    await running.client.get("/metrics")
    versions._turned_at -= 100
    await snapshot(running)
    assert len(worths) == 1


async def test_versions_in_quarantine_are_named_with_the_tenant(
    running: Running, bert: Backbone, make_artifact: Callable[..., bytes]
) -> None:
    """And with the reason of their last failure."""
    await running.upload(make_artifact(bert, name="a"))
    (entry,) = running.service.catalog.entries()
    for _ in range(3):
        with pytest.raises(InferenceFailed), running.service.quarantine.attempt("default", entry):
            raise InferenceFailed("it broke")
    after = await snapshot(running)
    assert after.quarantined == 1
    assert [(one.tenant, one.adapter.name, one.reason) for one in after.quarantine] == [("default", "a", "it broke")]
