"""Tenants that overload a running server: shares, bounds and priorities over HTTP."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import httpx2
import pytest
from peltier_backbone.backbone import Backbone
from peltier_server.runner import isolation
from prometheus_client.parser import text_string_to_metric_families

from tests.server.conftest import Running, Serve, hold, take_steps, until

OPERATOR = "plt_of-the-operator"
BATCH_TOKENS = 60
TEXT = "the plot was not very good"


@dataclass(frozen=True)
class Shared:
    """A server with tenants a and b, each with a key and an adapter `demo` of its own."""

    running: Running
    keys: dict[str, str]

    async def ask(self, tenant: str, method: str, path: str, body: object = None) -> httpx2.Response:
        """A call by the key of `tenant`."""
        headers = {"authorization": f"Bearer {self.keys[tenant]}"}
        return await self.running.client.request(method, path, json=body, headers=headers)

    def predict(self, tenant: str, inputs: object = TEXT, **parameters: object) -> "asyncio.Task[httpx2.Response]":
        """A prediction in progress."""
        body = {"inputs": inputs, "parameters": parameters}
        return asyncio.ensure_future(self.ask(tenant, "POST", "/v1/tasks/demo/predict", body))

    async def served(self) -> dict[str, float]:
        """`peltier_tenant_served_tokens_total` of each tenant."""
        page = (await self.ask("operator", "GET", "/metrics")).text
        samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
        return {s.labels["tenant"]: s.value for s in samples if s.name == "peltier_tenant_served_tokens_total"}

    def waiting(self, tenant: str) -> int:
        """Tokens of the tenant in the queue."""
        return self.running.service.batcher.queued_tokens_by_tenant().get(tenant, 0)


async def settle_in(running: Running, make: Callable[[int], bytes]) -> Shared:
    """Makes the tenants, of weights 1 and 3, and an adapter for each."""
    shared = Shared(running, {"operator": OPERATOR})
    for seed, tenant in enumerate(("a", "b")):
        await shared.ask("operator", "POST", "/v1/tenants", {"name": tenant, "quotas": {"weight": 1 + 2 * seed}})
        key = {"tenant": tenant, "scopes": ["predict", "publish"]}
        shared.keys[tenant] = (await shared.ask("operator", "POST", "/v1/keys", key)).json()["key"]
        headers = {"authorization": f"Bearer {shared.keys[tenant]}"}
        files = {"file": ("a.safetensors", make(seed))}
        made = await running.client.post("/v1/adapters", files=files, data={"name": "demo"}, headers=headers)
        assert made.status_code == 201, made.text
    return shared


@pytest.fixture
def make_data(bert: Backbone, make_artifact: Callable[..., bytes]) -> Callable[[int], bytes]:
    return lambda seed: make_artifact(bert, "bitfit", seed=seed)


@pytest.fixture
async def shared(serve: Serve, make_data: Callable[[int], bytes]) -> AsyncIterator[Shared]:
    async with serve(admin_key=OPERATOR, max_batch_tokens=BATCH_TOKENS, max_queue_tokens=20_000) as running:
        yield await settle_in(running, make_data)


async def test_two_that_want_all_get_what_their_weights_say(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every moment while both wait, within half a batch of each one's own; by the metric that operators see."""
    turns = take_turns(monkeypatch)
    async with hold(shared.running):
        before = await shared.served()
        floods = [shared.predict(tenant, [TEXT] * 80) for tenant in ("a", "b")]
        await until(lambda: shared.waiting("a") and shared.waiting("b"))
    gaps = []
    while True:
        now, again = await shared.served(), await shared.served()
        if not (shared.waiting("a") and shared.waiting("b")):
            break
        if now == again:  # else a batch was being counted
            gaps.append(abs((now["a"] - before["a"]) - (now["b"] - before["b"]) / 3))
        turns.release()
        await asyncio.sleep(0.005)
    turns.release(1000)
    answers = await asyncio.gather(*floods)
    assert {answer.status_code for answer in answers} == {200}
    assert len(gaps) > 3
    assert max(gaps) <= BATCH_TOKENS / 2 + BATCH_TOKENS / 2 / 3


def take_turns(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Each batch but the first waits to be released, so that there is time to look at the queue between them."""
    forward, turns = isolation.forward, threading.Semaphore(1)

    def wait(*given: object, **named: object) -> object:
        turns.acquire(timeout=60)
        return forward(*given, **named)

    monkeypatch.setattr(isolation, "forward", wait)
    return turns


async def test_a_weight_holds_everywhere_once_it_is_set(serve: Serve) -> None:
    """The queue reads it from memory: at once where it was set, and where replicas follow the registry."""
    async with serve() as one, serve() as two:
        await one.client.post("/v1/tenants", json={"name": "a", "quotas": {"weight": 3}})
        weights = [running.app.state.enforcer.weight for running in (one, two)]
        assert (weights[0]("a"), weights[0]("default"), weights[0]("nobody")) == (3, 1, 1)
        assert (await one.client.put("/v1/tenants/a", json={"weight": 7.5})).status_code == 200
        assert weights[0]("a") == 7.5
        await until(lambda: weights[1]("a") == 7.5)


async def test_priority_is_a_parameter(shared: Shared) -> None:
    """Of one tenant's requests that wait the most urgent is first; a number that is too large is refused."""
    done: list[int] = []

    async def ask(priority: int) -> None:
        assert (await shared.predict("a", [TEXT] * 7, priority=priority)).status_code == 200
        done.append(priority)

    async with hold(shared.running):
        asked = []
        for priority in (-3, 0, 7):
            before = shared.waiting("a")
            asked.append(asyncio.ensure_future(ask(priority)))
            await until(lambda before=before: shared.waiting("a") > before)
    await asyncio.gather(*asked)
    assert done == [7, 0, -3]
    assert (await shared.predict("a", priority=11)).status_code == 422


async def test_texts_are_shared_like_rows(serve, t5, t5_directory, make_artifact, monkeypatch):
    """A few texts do not wait for a flood of them, and what is written is counted for its tenant."""
    async with serve(admin_key=OPERATOR, backbone=str(t5_directory), max_decode_rows=4) as running:
        shared = await settle_in(running, lambda seed: make_artifact(t5, "bitfit", task_type="text2text", seed=seed))
        async with hold(running):
            before = await shared.served()
            flood = shared.predict("a", [TEXT] * 60, max_new_tokens=8)
            await until(lambda: shared.waiting("a"))
            few = shared.predict("b", [TEXT] * 2, max_new_tokens=8)
            await until(lambda: shared.waiting("b"))
            turns = take_steps(monkeypatch)
        turns.release(60)  # half of those that the flood needs
        answer = await few
        assert not flood.done()
        turns.release(1000)
        assert (await flood).status_code == 200
        now = await shared.served()
    usage = answer.json()["usage"]
    # A step that finds the text's end is computed too.
    written = now["b"] - before["b"] - usage["tokens"]
    assert usage["completion_tokens"] <= written <= usage["completion_tokens"] + 2
