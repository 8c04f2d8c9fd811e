"""Pins through HTTP."""

import asyncio
from collections.abc import Callable

import pytest
from peltier_adapters.artifact.artifact import Artifact
from peltier_backbone.backbone import Backbone
from peltier_server.context import AdapterKey
from peltier_server.residency.loader import StoreLoader
from peltier_store.blobs.blobs import BlobNotFound, Blobs

from tests.server.conftest import Running, Serve, hold, until


@pytest.fixture
async def shelf(running: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> Running:
    for seed in range(2):
        (await running.upload(make_artifact(bert, "bitfit", seed=seed), "demo")).raise_for_status()
    return running


async def test_a_pin_keeps_the_version_that_answers(shelf: Running) -> None:
    """The answer says who made it; the pin follows the alias production to another version."""
    entries = shelf.service.catalog.get("default", "demo").entries
    answer = await shelf.client.put("/v1/adapters/demo/pin", json={})
    assert (answer.status_code, answer.json()["pinned_by"]) == (200, "local")
    assert shelf.service.slots.device.pinned == {entries[2].owned}
    again = await shelf.client.put("/v1/adapters/demo/pin", json={})
    assert again.json() == answer.json()
    await shelf.client.put("/v1/adapters/demo/aliases/production", json={"version": 1})
    await until(lambda: shelf.service.slots.device.pinned == {entries[1].owned})


async def test_a_pin_has_no_tier(shelf: Running) -> None:
    """Neither here nor in the Open Inference Protocol."""
    assert (await shelf.client.put("/v1/adapters/demo/pin", json={"tier": "host"})).status_code == 422
    load = {"parameters": {"tier": "host"}}
    assert (await shelf.client.post("/v2/repository/models/demo/load", json=load)).status_code == 400
    assert not shelf.service.slots.device.pinned


async def test_a_release_and_a_deletion_end_a_pin(shelf: Running) -> None:
    """Also on a server that is told by the registry; a second release changes nothing."""
    for end in ("DELETE /v1/adapters/demo/pin", "DELETE /v1/adapters/demo/pin", "DELETE /v1/adapters/demo"):
        if end.endswith("demo"):
            (await shelf.client.put("/v1/adapters/demo/pin", json={})).raise_for_status()
            assert shelf.service.slots.device.pinned
        assert (await shelf.client.request(*end.split())).status_code == 204
        await until(lambda: not shelf.service.slots.device.pinned)


async def test_pins_survive_a_restart(serve: Serve, bert: Backbone, make_artifact: Callable[..., bytes]) -> None:
    """A new server loads what is pinned, and what its setting names, before it is ready."""
    async with serve() as first:
        for name in ("kept", "warm", "cold"):
            await first.upload(make_artifact(bert, "bitfit", name=name), name)
        (await first.client.put("/v1/adapters/kept/pin", json={})).raise_for_status()
    async with serve(warm="warm, default:warm@1") as second:
        await until(lambda: second.app.state.lifecycle.problem is None)
        newest = {name: second.service.catalog.get("default", name).newest.owned for name in ("kept", "warm", "cold")}
        assert set(second.service.slots.device.loaded()) == {newest["kept"], newest["warm"]}
        assert len(second.service.slots.device.pinned) == 1


async def test_a_pin_applies_to_every_replica(serve, bert, make_artifact):
    """Another server of the same registry loads what is pinned, and releases it again."""
    async with serve() as first, serve() as second:
        await first.upload(make_artifact(bert, "bitfit"), "demo")
        (await first.client.put("/v1/adapters/demo/pin", json={})).raise_for_status()
        owned = first.service.catalog.get("default", "demo").newest.owned
        await until(lambda: second.service.slots.device.pinned == {owned})
        (await first.client.delete("/v1/adapters/demo/pin")).raise_for_status()
        await until(lambda: second.service.slots.device.pinned == set())


async def test_pins_beyond_the_bound_are_refused(serve, bert, make_artifact):
    """In one sentence; nothing is pinned then, and a release makes room."""
    artifacts = {name: make_artifact(bert, "bitfit", name=name) for name in ("one", "two")}
    async with serve() as running:
        for name, data in artifacts.items():
            await running.upload(data, name)
        size = running.service.slots.device.used_bytes // 2
    async with serve(device_bytes=3 * size) as running:
        (await running.client.put("/v1/adapters/one/pin", json={})).raise_for_status()
        refused = await running.client.put("/v1/adapters/two/pin", json={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (507, "storage_full")
        assert refused.json()["error"]["message"] == (
            f"pinned adapters take {size} of the {3 * size // 2} bytes that they may take on the device; "
            f"{size} more do not fit"
        )
        owned = {name: running.service.catalog.get("default", name).newest.owned for name in artifacts}
        assert running.service.slots.device.pinned == {owned["one"]}
        (await running.client.delete("/v1/adapters/one/pin")).raise_for_status()
        await until(lambda: not running.service.slots.device.pinned)
        (await running.client.put("/v1/adapters/two/pin", json={})).raise_for_status()
        assert running.service.slots.device.pinned == {owned["two"]}


async def test_a_broken_adapter_does_not_keep_the_server_unready(serve, bert, make_artifact, monkeypatch):
    """It is tried once, and counted; unknown names are only logged."""
    async with serve() as first:
        await first.upload(make_artifact(bert, "bitfit", name="demo"), "demo")
        (await first.client.put("/v1/adapters/demo/pin", json={})).raise_for_status()

    async def lose(self: Blobs, digest: str, *_: object) -> None:
        raise BlobNotFound(digest)

    monkeypatch.setattr(Blobs, "load", lose)
    async with serve(warm="demo,missing") as second:
        await until(lambda: second.app.state.lifecycle.problem is None)
        page = (await second.client.get("/metrics")).text
        assert "peltier_pin_failures 1.0" in page
        assert "peltier_warm_failures 2.0" in page
        monkeypatch.undo()
        second.service.pins.wake()
        await until(lambda: second.service.slots.device.pinned)
        assert not second.service.pins.failures


async def test_the_server_is_not_ready_while_its_warm_list_loads(serve, bert, make_artifact, monkeypatch):
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


async def test_loads_overlap_with_each_other_and_with_the_queue(serve, bert, make_artifact, monkeypatch):
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
            wanted = {catalog.get("default", name).newest.owned for name in names}
            await until(lambda: wanted <= set(slots.device.loaded()))
        assert [answer.status_code for answer in await asyncio.gather(*requests)] == [200] * 3
        assert [answer.headers["x-adapter-tier"] for answer in await asyncio.gather(*requests)] == ["store"] * 3
        (await second.predict("one", "good")).raise_for_status()
        page = (await second.client.get("/metrics")).text
        assert 'peltier_cold_start_seconds_count{from="store"} 3.0' in page
        assert 'peltier_cold_start_seconds_count{from="host"}' not in page
