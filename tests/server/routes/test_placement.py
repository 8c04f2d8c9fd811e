"""Pins and placements through HTTP."""

import asyncio
import re
from collections.abc import Callable

import pytest
from peltier_adapters.artifact.artifact import Artifact
from peltier_backbone.backbone import Backbone
from peltier_server.residency.leases import AdapterKey
from peltier_server.residency.loader import StoreLoader
from peltier_store.blobs.blobs import BlobNotFound, Blobs

from tests.server.conftest import Running, Serve, hold, until


@pytest.fixture
async def shelf(running: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> Running:
    """A server with two versions of `demo`."""
    for seed in range(2):
        (await running.upload(make_artifact(bert, "bitfit", seed=seed), "demo")).raise_for_status()
    return running


async def test_a_pin_keeps_the_version_that_answers(shelf: Running) -> None:
    """The answer says where it is and who pinned it; the pin follows the alias production to another version."""
    answer = await shelf.client.put("/v1/adapters/demo/pin", json={"tier": "device"})
    assert answer.status_code == 200, answer.text
    placement = answer.json()
    (version,) = [one for one in placement["versions"] if one["pinned"]]
    assert (version["version"], version["tier"], version["share"]) == (2, "device", 1.0)
    assert "pinned, so it is never evicted" in version["reason"]
    assert (placement["pin"]["tier"], placement["pin"]["pinned_by"]) == ("device", "local")
    read = (await shelf.client.get("/v1/adapters/demo/placement")).json()
    assert read["pin"] == placement["pin"]
    await shelf.client.put("/v1/adapters/demo/aliases/production", json={"version": 1})
    entries = shelf.service.catalog.get("default", "demo").entries
    await until(lambda: shelf.service.slots.pinned == {(entries[1].owned, "device")})


async def test_a_release_and_a_deletion_end_a_pin(shelf: Running) -> None:
    """Also on a server that is told by the registry; a second release changes nothing."""
    for end in ("DELETE /v1/adapters/demo/pin", "DELETE /v1/adapters/demo/pin", "DELETE /v1/adapters/demo"):
        if end.endswith("demo"):
            (await shelf.client.put("/v1/adapters/demo/pin", json={"tier": "host"})).raise_for_status()
            assert {tier for _, tier in shelf.service.slots.pinned} == {"host"}
        assert (await shelf.client.request(*end.split())).status_code == 204
        await until(lambda: not shelf.service.slots.pinned)


async def test_pins_survive_a_restart(serve: Serve, bert: Backbone, make_artifact: Callable[..., bytes]) -> None:
    """A new server loads what is pinned, and what its setting names, before it is ready."""
    async with serve() as first:
        for name in ("kept", "warm", "cold"):
            await first.upload(make_artifact(bert, "bitfit", name=name), name)
        (await first.client.put("/v1/adapters/kept/pin", json={})).raise_for_status()
    async with serve(warm="warm, default:warm@1") as second:
        await until(lambda: second.app.state.lifecycle.problem is None)
        tiers = {
            name: second.service.slots.tier(second.service.catalog.get("default", name).newest.owned)
            for name in ("kept", "warm", "cold")
        }
        assert tiers == {"kept": "device", "warm": "device", "cold": None}
        assert len(second.service.slots.pinned) == 1


async def test_a_pin_applies_to_every_replica(
    serve: Serve, bert: Backbone, make_artifact: Callable[..., bytes]
) -> None:
    """Another server of the same registry loads what is pinned, and releases it again."""
    async with serve() as first, serve() as second:
        await first.upload(make_artifact(bert, "bitfit"), "demo")
        (await first.client.put("/v1/adapters/demo/pin", json={})).raise_for_status()
        owned = first.service.catalog.get("default", "demo").newest.owned
        await until(lambda: second.service.slots.pinned == {(owned, "device")})
        (await first.client.delete("/v1/adapters/demo/pin")).raise_for_status()
        await until(lambda: second.service.slots.pinned == set())


async def test_pins_beyond_a_bound_are_refused(
    serve: Serve, bert: Backbone, make_artifact: Callable[..., bytes]
) -> None:
    """In one sentence, by the quota or by the memory; nothing is pinned then."""
    async with serve(host_bytes=1000) as running:
        for name in ("one", "two"):
            await running.upload(make_artifact(bert, "bitfit", name=name), name)
        await running.client.put("/v1/tenants/default", json={"max_pinned_adapters": 1})
        large = await running.client.put("/v1/adapters/one/pin", json={"tier": "host"})
        assert (large.status_code, large.json()["error"]["code"]) == (507, "storage_full")
        assert "of the 500 bytes that they may take in host memory" in large.json()["error"]["message"]
        (await running.client.put("/v1/adapters/one/pin", json={})).raise_for_status()
        many = await running.client.put("/v1/adapters/two/pin", json={})
        message = "tenant 'default' has pinned 1 adapters and may pin 1; release one first"
        assert (many.status_code, many.json()["error"]["message"]) == (507, message)
        assert [key.digest for key, _ in running.service.slots.pinned] == [
            running.service.catalog.get("default", "one").newest.digest
        ]


async def test_a_broken_adapter_does_not_keep_the_server_unready(
    serve: Serve, bert: Backbone, make_artifact: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried once, and the placement says why it is not there; unknown names are only logged."""
    async with serve() as first:
        await first.upload(make_artifact(bert, "bitfit", name="demo"), "demo")
        (await first.client.put("/v1/adapters/demo/pin", json={})).raise_for_status()

    async def lose(self: Blobs, digest: str, *_: object) -> None:
        raise BlobNotFound(f"{digest} is at /secret/place")

    monkeypatch.setattr(Blobs, "load", lose)
    async with serve(warm="demo,missing") as second:
        await until(lambda: second.app.state.lifecycle.problem is None)
        (version,) = (await second.client.get("/v1/adapters/demo/placement")).json()["versions"]
        reason = "its pin has failed: its stored bytes cannot be read; the server's log has the reason"
        assert (version["tier"], version["pinned"]) == ("store", False)
        assert version["reason"].endswith(reason)
        page = (await second.client.get("/metrics")).text
        assert "peltier_pin_failures 1.0" in page
        assert "peltier_warm_failures 2.0" in page
        monkeypatch.undo()
        second.service.pins.wake()
        await until(lambda: second.service.slots.pinned)
        assert not second.service.pins.failures


async def test_the_server_is_not_ready_while_its_warm_list_loads(
    serve: Serve, bert: Backbone, make_artifact: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers requests all the same."""
    async with serve() as first:
        for name in ("demo", "other"):
            await first.upload(make_artifact(bert, "bitfit", name=name), name)
        pinned = first.service.catalog.get("default", "demo").newest.owned
        (await first.client.put("/v1/adapters/demo/pin", json={})).raise_for_status()
    released, fetch = asyncio.Event(), StoreLoader.fetch

    async def wait(self: StoreLoader, key: AdapterKey) -> Artifact:
        if key == pinned:
            await released.wait()
        return await fetch(self, key)

    monkeypatch.setattr(StoreLoader, "fetch", wait)
    async with serve() as second:
        answer = await second.client.get("/ready")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
        assert answer.json()["error"]["message"] == "the server is still loading its warm list"
        assert (await second.predict("other", "good")).status_code == 200
        released.set()
        await until(lambda: second.app.state.lifecycle.problem is None)


async def test_loads_overlap_with_each_other_and_with_the_queue(
    serve: Serve, bert: Backbone, make_artifact: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three requests for cold adapters meet in the store, while nothing is computed: each load begins before any row is
    taken. The cold starts are counted with their tier."""
    names = ("one", "two", "three")
    async with serve() as first:
        for name in names:
            await first.upload(make_artifact(bert, "bitfit", name=name), name)
    barrier, fetch = asyncio.Barrier(len(names)), StoreLoader.fetch

    async def meet(self: StoreLoader, key: AdapterKey) -> Artifact:
        await barrier.wait()
        return await fetch(self, key)

    async with serve() as second:
        slots, catalog = second.service.slots, second.service.catalog
        monkeypatch.setattr(StoreLoader, "fetch", meet)
        async with hold(second):
            requests = [asyncio.create_task(second.predict(name, "good")) for name in names]
            await until(
                lambda: all(slots.tier(catalog.get("default", name).newest.owned) == "device" for name in names)
            )
        assert [answer.status_code for answer in await asyncio.gather(*requests)] == [200] * 3
        assert [answer.headers["x-adapter-tier"] for answer in await asyncio.gather(*requests)] == ["store"] * 3
        (await second.predict("one", "good")).raise_for_status()
        page = (await second.client.get("/metrics")).text
        assert 'peltier_cold_start_seconds_count{from="store"} 3.0' in page
        assert 'peltier_cold_start_seconds_count{from="host"}' not in page


async def test_what_nobody_uses_leaves_memory(
    serve: Serve, bert: Backbone, make_artifact: Callable[..., bytes]
) -> None:
    """After unload_after_seconds; a pinned adapter stays."""
    async with serve(unload_after_seconds=0.001) as running:
        for name in ("kept", "idle"):
            await running.upload(make_artifact(bert, "bitfit", name=name), name)
        (await running.client.put("/v1/adapters/kept/pin", json={})).raise_for_status()
        slots, catalog = running.service.slots, running.service.catalog
        await until(lambda: slots.tier(catalog.get("default", "idle").newest.owned) is None)
        assert slots.tier(catalog.get("default", "kept").newest.owned) == "device"
        # Two if the other one was idle so long before its pin.
        page = (await running.client.get("/metrics")).text
        assert re.search(r'^peltier_adapter_unloads_total\{tier="device"\} [12]\.0$', page, flags=re.MULTILINE)
        (version,) = (await running.client.get("/v1/adapters/idle/placement")).json()["versions"]
        assert (version["reason"], version["since"]) == ("in the store: the next request loads it", None)
