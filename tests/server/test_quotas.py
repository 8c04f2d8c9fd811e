"""The effect of a tenant's quotas over HTTP."""

import logging
from pathlib import Path

import pytest
import pytest_asyncio
from peltier_server.quotas import rates

from tests.server.catalog.test_publisher import stored
from tests.server.conftest import IN_ONE_LOOP, Running, Serve, until
from tests.support import redis_server
from tests.support.rate_windows import stand_still

pytestmark = IN_ONE_LOOP


@pytest.fixture
def running(app_caller: Running) -> Running:
    return app_caller


@pytest_asyncio.fixture(loop_scope="module")
async def shelf(running, bert, make_artifact, monkeypatch):
    """A tenant with an adapter to ask, where no window of a rate ends."""
    stand_still(monkeypatch)
    assert (await running.upload(make_artifact(bert, "bitfit"), "demo")).status_code == 201
    return running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def writing(open_app, t5, t5_directory, make_artifact):
    """A tenant of another server, whose adapter writes texts."""
    async with open_app(backbone=str(t5_directory)) as running, running.enter() as caller:
        await caller.upload(make_artifact(t5, "lora", task_type="text2text"), "demo")
        yield caller


async def test_requests_over_the_rate_are_refused(shelf: Running) -> None:
    await shelf.limit(requests_per_second=0.02)
    first = await shelf.predict("demo", "good")
    assert (first.status_code, first.headers["ratelimit-remaining"]) == (200, "1")
    assert (await shelf.client.get("/info")).headers["ratelimit-remaining"] == "0"
    third = await shelf.predict("demo", "good")
    assert (third.status_code, third.json()["error"]["code"]) == (429, "quota_exceeded")
    assert int(third.headers["retry-after"]) >= 1
    assert third.headers["ratelimit-remaining"] == "0"
    assert (await shelf.client.get("/v1/models")).json()["error"]["code"] == "quota_exceeded"
    assert (await shelf.client.get("/v1/tenants")).status_code == 200
    assert (await shelf.client.get("/metrics")).status_code == 200
    await shelf.limit()
    assert "ratelimit-limit" not in (await shelf.predict("demo", "good")).headers


async def test_tokens_over_the_rate_are_refused(shelf: Running) -> None:
    """To the token; and a refused request was one of the tenant's requests nevertheless."""
    tokens = (await shelf.predict("demo", "good")).json()["usage"]["tokens"]
    await shelf.limit(tokens_per_second=(2 * tokens + 1) / 1000, requests_per_second=0.003)
    assert (await shelf.predict("demo", "good")).status_code == 200
    assert (await shelf.predict("demo", ["good", "good"])).status_code == 429
    assert (await shelf.predict("demo", "good")).status_code == 200
    assert "may send 3 requests in 1000 s" in (await shelf.predict("demo", "good")).json()["error"]["message"]


async def test_the_default_tenant_has_quotas_as_any_other(serve: Serve) -> None:
    async with serve() as running:
        assert running.tenant == "default"
        await running.limit(requests_per_second=0.001)
        assert [(await running.client.get("/info")).status_code for _ in range(2)] == [200, 429]


async def test_each_part_of_a_mixed_request_pays_for_itself(shelf: Running) -> None:
    tokens = (await shelf.predict("demo", "good")).json()["usage"]["tokens"]
    await shelf.limit(tokens_per_second=2 * tokens / 1000)
    answer = await shelf.predict_mixed(*[{"task": "demo", "input": "good"}] * 3)
    outcomes = sorted(result.get("error", {}).get("code", "answered") for result in answer.json()["results"])
    assert outcomes == ["answered", "answered", "quota_exceeded"]


async def test_a_full_shelf_is_507(shelf, bert, make_artifact, caplog):
    """By bytes or by number; versions of an adapter that is there need no further place for it. It is no fault."""
    await shelf.limit(max_adapters=1)
    other = await shelf.upload(make_artifact(bert, "bitfit", seed=1), "other")
    assert (other.status_code, other.json()["error"]["code"]) == (507, "storage_full")
    assert (await shelf.upload(make_artifact(bert, "bitfit", seed=1), "demo")).status_code == 201
    await shelf.limit(max_stored_bytes=1)
    again = await shelf.upload(make_artifact(bert, "bitfit", seed=2), "demo")
    assert (again.status_code, again.json()["error"]["code"]) == (507, "storage_full")
    assert again.headers["retry-after"] == "60"
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []


async def test_what_is_over_a_quota_leaves_nothing(shelf, bert, make_artifact):
    """Neither on the disk nor on the device, however often a tenant tries."""
    before, used_bytes = stored(shelf), shelf.service.slots.device.used_bytes
    await shelf.limit(max_stored_bytes=len(make_artifact(bert, "bitfit")))
    for seed in (11, 12):
        assert (await shelf.upload(make_artifact(bert, "bitfit", seed=seed), "demo")).status_code == 507
    assert stored(shelf) == before
    assert shelf.service.slots.device.used_bytes == used_bytes


async def test_what_is_not_recorded_does_not_stay_on_the_device(shelf, bert, make_artifact, monkeypatch):
    used_bytes = shelf.service.slots.device.used_bytes
    await shelf.limit(max_stored_bytes=2**40)

    async def meanwhile(*_: object, **__: object) -> None:
        await shelf.limit(max_stored_bytes=0)

    monkeypatch.setattr(shelf.service.store.registry, "require_room", meanwhile)
    assert (await shelf.upload(make_artifact(bert, "bitfit", seed=13), "demo")).status_code == 507
    await until(lambda: shelf.service.slots.device.used_bytes == used_bytes)


@pytest.mark.slow  # the counts of rates in memory stay (`quotas/test_rates.py`)
async def test_replicas_share_a_tenants_rate(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Redis between them, what one has let in the other does not."""
    monkeypatch.setattr(rates, "_TIMEOUT_SECONDS", 60)
    with redis_server.running(tmp_path) as redis:
        async with serve(rate_store=redis.url) as one, serve(rate_store=redis.url) as other:
            await one.limit(requests_per_second=0.003)
            await other.service.store.sync.catch_up()
            asked = [await running.client.get("/info") for running in (one, other, one, other, one)]
    assert [answer.status_code for answer in asked] == [200, 200, 200, 429, 429]
    assert [answer.headers["ratelimit-remaining"] for answer in asked] == ["2", "1", "0", "0", "0"]


async def test_a_text_costs_what_it_may_become(writing: Running) -> None:
    """The input's tokens and the most that may be written, for each beam: known before anything is computed."""
    tokens = (await writing.predict("demo", "good")).json()["usage"]["tokens"]
    # A number of tokens that takes the longest window, where a request is compared with all of them.
    spare = next(spare for spare in range(5, 15) if (tokens + spare) % 10)
    async with writing.limited(tokens_per_second=(tokens + spare) / 1000):
        assert (await writing.predict("demo", "good", max_new_tokens=spare + 1)).status_code == 413
        assert (await writing.predict("demo", "good", max_new_tokens=spare, num_beams=2)).status_code == 413
        assert (await writing.predict("demo", "good", max_new_tokens=spare)).status_code == 200
        assert (await writing.predict("demo", "good", max_new_tokens=1)).status_code == 429


async def test_every_text_of_a_request_costs_what_it_may_become(writing: Running) -> None:
    """Many inputs in one request are no way around the tokens that a tenant may use."""
    tokens = (await writing.predict("demo", ["good"] * 3)).json()["usage"]["tokens"]
    spare = next(spare for spare in range(3, 12, 3) if (tokens + spare) % 10)
    async with writing.limited(tokens_per_second=(tokens + spare) / 1000):
        assert (await writing.predict("demo", ["good"] * 3, max_new_tokens=spare // 3 + 1)).status_code == 413
        assert (await writing.predict("demo", ["good"] * 3, max_new_tokens=spare // 3)).status_code == 200
