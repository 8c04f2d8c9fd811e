"""Bounds of adapters in memory."""

import asyncio
from dataclasses import replace
from unittest.mock import patch

from peltier_server.extensions.settings import SETTINGS
from peltier_server.fairness.shared_bound import Shares
from peltier_server.residency import fetches
from peltier_server.residency.loader import StoreLoader

from tests.server.limits.probe import Met, probe
from tests.server.limits.servers import Servers, Small

probe("bytes of one adapter on the device")(lambda servers: servers.bert.upload(_large(servers, 64), name="large"))


@probe("bytes of all adapters on the device")
def _(servers: Servers) -> Met:
    assert _evictions(servers, "device") > 0
    return "the least recently used adapter is evicted, and the request waits for the load"


@probe("bytes of adapters in the host's memory")
def _(servers: Servers) -> Met:
    assert _evictions(servers, "host") > 0
    return "the least recently used adapter is evicted, and its next load reads the store"


@probe("bytes of pinned adapters on the device", SETTINGS["device_bytes"].default // 2)
def _(servers: Servers) -> Met:
    # Two thirds of the device.
    servers.bert.upload(_large(servers, 24), name="large-0").raise_for_status()
    return servers.bert.client.put("/v1/adapters/large-0/pin", json={})


@probe("time for the warm list to load before the server is ready without the rest")
def _(servers: Servers) -> Met:
    with servers.start("bert") as other, patch.object(other.service.warm_list, "_is_loaded", False):
        return other.client.get("/ready")


@probe("loads from the store at once", "peltier_server.residency.fetches._MAX_FETCHES")
def _(servers: Servers) -> Met:
    with patch.object(servers.bert.service.slots._fetches, "_shares", Shares(0)):
        _evictions(servers, "device")
        servers.bert.service.slots.retire(servers.bert.service.catalog.get("default", "large-0").newest.owned)
        answer = replace(servers.bert, task="large-0").predict(timeout_ms=100)
    assert answer.status_code == 504
    return "other loads wait"


@probe("time for the store to bring an adapter", "peltier_server.residency.fetches._FETCH_SECONDS")
def _(servers: Servers) -> Met:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    with (
        servers.start("bert", host_bytes=0) as other,
        patch.object(fetches, "_FETCH_SECONDS", 0.1),
        patch.object(StoreLoader, "fetch", never),
    ):
        _forget_demo(other)
        return other.predict()


@probe("loads from the store at once, of one tenant", 3 * fetches._MAX_FETCHES // 4)
def _(servers: Servers) -> Met:
    shares = Shares(fetches._MAX_FETCHES)
    while shares.allows("default", 1, 1):
        shares.take("default", 1, 1)
    with servers.start("bert", host_bytes=0) as other, patch.object(other.service.slots._fetches, "_shares", shares):
        _forget_demo(other)
        assert other.predict(timeout_ms=100).status_code == 504
    return "the tenant's other loads wait"


@probe("bytes on the device in use by one tenant", 3 * SETTINGS["device_bytes"].default // 4)
def _(servers: Servers) -> Met:
    with servers.start("bert", max_load_wait_seconds=0.1) as other:
        for seed in range(2):
            other.upload(_large(servers, 24, seed=seed), name=f"large-{seed}").raise_for_status()
        held = other.service.slots.lease(other.service.catalog.get("default", "large-0").newest.owned, "default")
        other.run(held.__aenter__())
        answer = replace(other, task="large-1").predict()
        other.run(held.__aexit__(None, None, None))
        return answer


@probe("time to wait for a place at the store, and again for room on the device")
def _(servers: Servers) -> Met:
    with (
        servers.start("bert", host_bytes=0, max_load_wait_seconds=0.1) as other,
        patch.object(other.service.slots._fetches, "_shares", Shares(0)),
    ):
        _forget_demo(other)
        return other.predict()


def _forget_demo(server: Small) -> None:
    server.service.slots.retire(server.service.catalog.get("default", "demo").newest.owned)


def _evictions(servers: Servers, tier: str) -> float:
    """How many adapters have left a tier once two have come of which it holds one."""
    for seed in range(2):
        servers.bert.upload(_large(servers, 24, seed=seed), name=f"large-{seed}").raise_for_status()
    (found,) = servers.bert.metrics("peltier_adapter_evictions_total", tier=tier)
    return found


def _large(servers: Servers, bottleneck: int, **options: object) -> bytes:
    overrides = {"bottleneck": str(bottleneck)}
    return servers.make_artifact(servers.backbones["bert"], "houlsby", overrides=overrides, **options)
