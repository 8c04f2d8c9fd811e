"""A request keeps its version as long as the version exists."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from peltier_backbone.backbone import Backbone
from peltier_server.catalog.purge import PurgeTask
from peltier_server.context import AdapterKey

from tests.adapters_store.store.test_commands import make_older
from tests.server.conftest import Running
from tests.server.gate import Gate


@pytest.fixture
def artifacts(bert: Backbone, make_artifact: Callable[..., bytes]) -> list[bytes]:
    return [make_artifact(bert, "bitfit", name="a", seed=seed) for seed in range(2)]


async def test_a_version_that_is_purged_before_it_is_loaded_is_answered_for_by_its_successor(
    running: Running, artifacts: list[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By what the reference means by then: another version, or none where it named that one by its number."""
    items = [{"task": task, "input": "bad"} for task in ("a", "a@live", "a@1")]
    asking = await _ask_while_it_is_purged(running, monkeypatch, tmp_path, artifacts, running.predict_mixed(*items))
    *answered, refused = asking.json()["results"]
    assert [one["adapter"]["version"] for one in answered] == [2, 2]
    assert (refused["error"]["code"], refused["error"]["message"]) == (
        "version_not_found", "adapter 'a' has no version 1; its newest is 2",
    )  # fmt: skip


async def test_an_answer_that_begins_anew_with_another_version_counts_once(serve, artifacts, monkeypatch, tmp_path):
    """There is room for one answer of the request, not for two."""
    async with serve(max_answer_bytes=8 * 1024) as running:
        asked = running.predict("a@live", ["bad"] * 24)
        answer = await _ask_while_it_is_purged(running, monkeypatch, tmp_path, artifacts, asked)
        assert answer.json()["adapter"]["version"] == 2
        assert (await running.predict("a@live", ["bad"] * 48)).status_code == 422


async def _ask_while_it_is_purged(running, monkeypatch, directory, artifacts, request):
    """The answer to a request during which version 1 of `a` is purged and `a@live` becomes version 2."""
    store, path = running.service.store, "/v1/adapters/a/aliases/live"
    old = (await running.upload(artifacts[0])).json()
    assert (await running.client.put(path, json={"version": 1})).status_code == 200
    running.service.slots.retire(AdapterKey("default", old["digest"]))
    gate = Gate(store.blobs.load)
    monkeypatch.setattr(store.blobs, "load", gate)
    asking = asyncio.create_task(request)
    await gate.reached()
    assert (await running.upload(artifacts[1])).status_code == 201
    assert (await running.client.put(path, json={"version": 2})).status_code == 200
    assert (await running.client.delete("/v1/adapters/a/versions/1")).status_code == 204
    make_older(directory / "store" / "blobs")
    await PurgeTask(store.registry, store.blobs, 0, 3600).purge()
    gate.opened.set()
    return await asking
