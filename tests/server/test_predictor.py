"""A request keeps its version, as long as there is one to keep."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from peltier_backbone.load import Backbone
from peltier_server.owned import Owned
from peltier_server.versions.janitor import Janitor

from tests.adapters_store.store.test_commands import make_older
from tests.server.conftest import Running
from tests.server.gate import Gate


async def test_a_version_that_is_purged_before_it_is_loaded_is_answered_for_by_its_successor(
    running: Running,
    bert: Backbone,
    make_artifact: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """By what the reference means by then: another version, or none where it named that one by its number."""
    store, path = running.service.store, "/v1/adapters/a/aliases/live"
    old = (await running.upload(make_artifact(bert, "bitfit", name="a"))).json()
    assert (await running.client.put(path, json={"version": 1})).status_code == 200
    running.service.slots.retire(Owned("default", old["digest"]))
    gate = Gate(store.blobs.load)
    monkeypatch.setattr(store.blobs, "load", gate)
    items = [{"task": task, "input": "bad"} for task in ("a", "a@live", "a@1")]
    asking = asyncio.create_task(running.predict_mixed(*items))
    await gate.reached()
    assert (await running.upload(make_artifact(bert, "bitfit", name="a", seed=1))).status_code == 201
    assert (await running.client.put(path, json={"version": 2})).status_code == 200
    assert (await running.client.delete("/v1/adapters/a/versions/1")).status_code == 204
    make_older(tmp_path / "store" / "blobs")
    await Janitor(store.registry, store.blobs, 0).tidy()
    gate.opened.set()
    *answered, refused = (await asking).json()["results"]
    assert [one["adapter"]["version"] for one in answered] == [2, 2]
    assert (refused["error"]["code"], refused["error"]["message"]) == (
        "version_not_found", "adapter 'a' has no version 1; its newest is 2",
    )  # fmt: skip
