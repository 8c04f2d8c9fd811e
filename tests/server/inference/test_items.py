"""Mixed requests do not block the event loop, start few items at a time, and charge for unknown names."""

import asyncio
import json
import socket
from collections import Counter
from typing import Any

import httpx2
import pytest
from peltier_client.protocol.administration import TenantQuotas
from peltier_server.fairness.preparation import MAX_ITEMS_BEGUN

from tests.server.attacker import post
from tests.server.conftest import IN_ONE_LOOP, Running, until
from tests.support.rate_windows import stand_still

pytestmark = IN_ONE_LOOP
NUM_ITEMS = 600


@pytest.fixture
def running(app_caller: Running) -> Running:
    """A new tenant of the module's server."""
    return app_caller


def unknown(count: int) -> list[dict[str, object]]:
    """Items with names of no adapter."""
    return [{"task": f"nobody-{number}", "input": "a"} for number in range(count)]


async def test_others_have_the_loop_between_slices(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight requests at once, few names are resolved in one turn of the event loop."""
    resolve, turn, resolved = running.service.predictor.resolve, 0, Counter[int]()

    def count(*given: Any) -> Any:
        resolved[turn] += 1
        return resolve(*given)

    monkeypatch.setattr(running.service.predictor, "resolve", count)
    calls = [asyncio.ensure_future(running.predict_mixed(*unknown(NUM_ITEMS))) for _ in range(8)]
    while not all(call.done() for call in calls):
        turn += 1
        await asyncio.sleep(0)
    for call in calls:
        codes = {result["error"]["code"] for result in call.result().json()["results"]}
        assert codes == {"adapter_not_found"}
    assert resolved.total() == 8 * NUM_ITEMS
    assert max(resolved.values()) <= 16


async def test_few_items_are_begun_at_a_time(running, bert, make_artifact, hold_runner):
    """Of all requests of a tenant as many as fill two batches wait for the runner; all are answered, in order."""
    await running.upload(make_artifact(bert, name="demo"))
    batcher = running.service.batcher
    items = [{"task": "demo", "input": "a good film"}, *unknown(1), *[{"task": "demo", "input": "bad"}] * NUM_ITEMS]
    async with hold_runner():
        waiting = asyncio.ensure_future(running.predict_mixed(*items))
        await until(lambda: len(batcher._rows) > MAX_ITEMS_BEGUN - 16)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(batcher._rows) <= MAX_ITEMS_BEGUN
        gone = asyncio.ensure_future(running.predict_mixed(*items))
        inputs = running.app.state.preparation.inputs
        await until(lambda: inputs.total == 2 * len(items))
        assert len(batcher._rows) <= MAX_ITEMS_BEGUN
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert running.app.state.preparation.inputs.total == len(items)
    results = (await waiting).json()["results"]
    assert [result.get("error", {}).get("code") for result in results] == [None, "adapter_not_found"] + [
        None
    ] * NUM_ITEMS
    assert [result["usage"]["tokens"] for result in results[::2]] == [5] + [3] * (NUM_ITEMS // 2)
    assert running.app.state.preparation.inputs.total == 0


async def test_a_deadline_counts_from_the_requests_arrival(running, hold_runner, bert, make_artifact):
    """Of all items, however late they are begun: those that come after the first ones have no time left."""
    await running.upload(make_artifact(bert, name="demo"))
    item = {"task": "demo", "input": "bad", "parameters": {"timeout_ms": 50}}
    async with hold_runner():
        results = (await running.predict_mixed(*[item] * NUM_ITEMS)).json()["results"]
    assert {result["error"]["code"] for result in results} == {"deadline_passed"}


async def test_unknown_names_cost_tokens(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """One each, so that a tenant's rate bounds how many it may look for."""
    stand_still(monkeypatch)
    enforcer = running.app.state.enforcer
    monkeypatch.setattr(enforcer, "quotas_of", lambda tenant: TenantQuotas(tokens_per_second=3.2))
    results = (await running.predict_mixed(*unknown(100))).json()["results"]
    codes = [result["error"]["code"] for result in results]
    assert codes == ["adapter_not_found"] * 32 + ["quota_exceeded"] * 68


async def test_inputs_that_are_refused_cost_tokens(running, bert, make_artifact, monkeypatch):
    await running.upload(make_artifact(bert, name="demo"))
    stand_still(monkeypatch)
    enforcer = running.app.state.enforcer
    monkeypatch.setattr(enforcer, "quotas_of", lambda tenant: TenantQuotas(tokens_per_second=2))
    found = [(await running.predict("demo", ["a"] * 9 + [" "])).status_code for _ in range(3)]
    assert found == [422, 422, 429]


async def test_cancelled_items_give_their_places_back(running, bert, make_artifact, hold_runner):
    await running.upload(make_artifact(bert, name="demo"))
    batcher, room = running.service.batcher, running.app.state.preparation.room_for_items(running.tenant)
    async with hold_runner():
        gone = asyncio.ensure_future(running.predict_mixed(*[{"task": "demo", "input": "bad"}] * NUM_ITEMS))
        await until(lambda: len(batcher._rows) == MAX_ITEMS_BEGUN)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert len(batcher._rows) == 0
    assert room.num_free == MAX_ITEMS_BEGUN


async def test_callers_who_hang_up_leave_nothing(listen, bert, make_artifact):
    """Over real sockets: forty-eight send large requests, mixed ones and long texts, and leave; then nothing is in
    progress and the next caller is answered."""
    item = {"task": "demo", "input": "the plot was not very good"}
    bodies = {
        "/v1/predict": json.dumps({"requests": [item] * 1024}).encode(),
        "/v1/tasks/demo/predict": json.dumps({"inputs": ["good film " * 150] * 1000}).encode(),
    }
    with listen() as listening:
        listening.upload(make_artifact(bert, name="demo"))
        address = httpx2.URL(listening.url)
        for number in range(48):
            path = list(bodies)[number % 2]
            with socket.create_connection((address.host, address.port or 0), timeout=20) as connection:
                connection.sendall(post(path, bodies[path]))
        answer = httpx2.post(f"{listening.url}/v1/tasks/demo/predict", json={"inputs": "bad"}, timeout=60)
        assert answer.status_code == 200
        preparation, lifecycle = listening.app.state.preparation, listening.app.state.lifecycle
        await until(lambda: lifecycle.idle)
        assert (preparation.pieces.num_waiting, preparation.slices.num_waiting) == (0, 0)
        assert (preparation.body_bytes.total, preparation.inputs.total) == (0, 0)
        assert listening.service.batcher.queued_tokens == 0


async def test_the_tasks_of_one_text_share_a_batch(serve, bert, make_artifact):
    """Although they start in slices: their rows enter the queue together. Unknown names among them delay nobody. The
    server has no other tenant, beside whom a batch may be smaller."""
    async with serve() as running:
        for seed, name in enumerate(("a", "b")):
            await running.upload(make_artifact(bert, "bitfit", name=name, seed=seed))
        results = (await running.predict_tasks(*["a", "b", "nobody"] * 25)).json()["results"]
    assert [result["batch"] for result in results if "error" not in result] == [{"rows": 50, "adapters": 2}] * 50


async def test_more_tasks_of_one_text_than_places_are_answered(running, bert, make_artifact):
    """Also those of several requests at once, which share the places: none waits for its own items to end."""
    await running.upload(make_artifact(bert, "bitfit", name="a"))
    tasks = ["a"] * (MAX_ITEMS_BEGUN - 10)
    answers = await asyncio.gather(*(running.predict_tasks(*tasks, text=f"good {text}") for text in "abc"))
    assert [len(answer.json()["results"]) for answer in answers] == [len(tasks)] * 3
    assert all("predictions" in one for answer in answers for one in answer.json()["results"])
