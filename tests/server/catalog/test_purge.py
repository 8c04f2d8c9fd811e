"""Permanent deletion."""

from peltier_server.catalog.purge import PurgeTask
from peltier_store.registry.errors import RegistryError

from tests.adapters_store.store.test_commands import make_older
from tests.server.catalog.test_publisher import stored_files
from tests.server.conftest import Running, until


def make_purge_task(running: Running, undelete_seconds: float) -> PurgeTask:
    store = running.service.store
    return PurgeTask(store.registry, store.blobs, undelete_seconds, 3600)


async def test_what_was_deleted_goes_after_its_grace_period(running, bert, make_artifact, tmp_path):
    """Version and bytes; what is live, also by another name, keeps both."""
    shared, own = (make_artifact(bert, "bitfit", name="a", seed=seed) for seed in (0, 1))
    for data, name in ((shared, "a"), (own, "a"), (shared, "b")):
        assert (await running.upload(data, name)).status_code == 201
    await running.client.delete("/v1/adapters/a")
    await make_purge_task(running, 3600).purge()
    assert len(stored_files(tmp_path / "store")) == 2
    assert (await running.client.post("/v1/adapters/a/versions/2/undelete")).status_code == 200
    await running.client.delete("/v1/adapters/a")
    make_older(tmp_path / "store" / "blobs")
    await make_purge_task(running, 0).purge()
    assert len(stored_files(tmp_path / "store")) == 1
    gone = await running.client.post("/v1/adapters/a/versions/2/undelete")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "version_not_found")
    assert "its grace period is over" in gone.json()["error"]["message"]
    assert (await running.predict("b", "bad")).status_code == 200
    assert (await running.upload(own, "a")).json()["version"] == 3


async def test_bytes_of_an_upload_that_broke_off_go_at_the_next_turn(running, bert, make_artifact, tmp_path):
    """The purge needs no deletion first; bytes reserved by a running upload stay."""
    store, data = running.service.store, make_artifact(bert, name="a")
    reservation = await store.registry.reserve(await store.blobs.put(data))
    await make_purge_task(running, 3600).purge()
    assert len(stored_files(tmp_path / "store")) == 1
    await store.registry.release(reservation)
    make_older(tmp_path / "store" / "blobs")
    await make_purge_task(running, 3600).purge()
    assert stored_files(tmp_path / "store") == []


async def test_a_registry_that_fails_is_tried_again(running, monkeypatch, caplog):
    calls: list[object] = []

    async def fail(before: object, actor: str) -> set[str]:
        calls.append(before)
        raise RegistryError("the registry 'x' failed: no route to it")

    monkeypatch.setattr("peltier_server.catalog.purge._MIN_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(running.service.store.registry, "purge", fail)
    purge_task = make_purge_task(running, 0)
    purge_task.start()
    await until(lambda: len(calls) > 1)
    await purge_task.close()
    assert "will be repeated: the registry 'x' failed" in caplog.text
