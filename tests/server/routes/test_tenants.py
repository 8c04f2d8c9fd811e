"""Tenants over HTTP, and the effect of their quotas."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peltier_backbone.backbone import Backbone

from tests.server.catalog.test_publisher import stored_files
from tests.server.conftest import Running, Serve, until
from tests.support import redis_server

UNLIMITED = {
    "requests_per_second": None,
    "tokens_per_second": None,
    "max_concurrent_requests": None,
    "max_stored_bytes": None,
    "max_adapters": None,
    "max_pinned_adapters": None,
    "max_trainings": None,
    "max_training_rows": None,
    "max_training_minutes_per_day": None,
    "weight": 1.0,
}


async def limit(running: Running, **quotas: object) -> None:
    """Sets the quotas of the default tenant."""
    answer = await running.client.put("/v1/tenants/default", json=quotas)
    assert answer.status_code == 200, answer.text


@pytest.fixture
async def shelf(running: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> Running:
    """A server with an adapter to ask."""
    assert (await running.upload(make_artifact(bert, "bitfit"), "demo")).status_code == 201
    return running


async def test_there_is_one_tenant_from_the_beginning(running: Running) -> None:
    """Without any limits."""
    (tenant,) = (await running.client.get("/v1/tenants")).json()["tenants"]
    assert (tenant["name"], tenant["quotas"]) == ("default", UNLIMITED)


async def test_a_tenant_is_made_once(running: Running) -> None:
    """With the quotas that were asked for."""
    made = await running.client.post("/v1/tenants", json={"name": "b", "quotas": {"max_adapters": 3}})
    assert (made.status_code, made.json()["quotas"]) == (201, {**UNLIMITED, "max_adapters": 3})
    assert (await running.client.get("/v1/tenants/b")).json() == made.json()
    again = await running.client.post("/v1/tenants", json={"name": "b"})
    assert (again.status_code, again.json()["error"]["code"]) == (409, "conflict")


async def test_usage_stands_beside_quotas(shelf: Running) -> None:
    """What is stored, and what was taken of a rate that has a quota."""

    async def usage() -> dict[str, Any]:
        answer = await shelf.client.get("/v1/tenants/default/usage")
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    (adapter,) = (await shelf.client.get("/v1/adapters")).json()["adapters"]
    stored = {"adapters": 1, "pinned_adapters": 0, "stored_bytes": adapter["latest"]["size_bytes"]}
    assert await usage() == {"requests": None, "tokens": None, "concurrent_requests": 0, **stored}
    await limit(shelf, requests_per_second=0.1, tokens_per_second=10)
    assert (await usage())["requests"] == {"used": 0, "limit": 1, "seconds": 10}
    answer = await shelf.predict("demo", "good")
    after = await usage()
    assert after["requests"]["used"] == 1
    assert after["tokens"] == {"used": answer.json()["usage"]["tokens"], "limit": 100, "seconds": 10}
    assert (await shelf.client.get("/v1/tenants/nobody/usage")).status_code == 404


async def test_quotas_are_replaced_whole(running: Running) -> None:
    """What is left out is no longer limited."""
    await limit(running, max_adapters=3, tokens_per_second=0.5)
    await limit(running, weight=2)
    answer = await running.client.get("/v1/tenants/default")
    assert answer.json()["quotas"] == {**UNLIMITED, "weight": 2.0}


NO_QUOTAS = [
    {"requests_per_second": 0},
    {"requests_per_second": -1},
    {"weight": 0},
    {"weight": 101},
    {"weight": None},
    {"max_adapters": -1},
    {"max_stored_bytes": 2**63},
    {"max_adapters": 1.5},
    {"requests": 5},
]


async def test_what_is_no_quota_is_refused(running: Running) -> None:
    """And changes nothing."""
    for quotas in NO_QUOTAS:
        answer = await running.client.put("/v1/tenants/default", json=quotas)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_input"), quotas
        assert (await running.client.get("/v1/tenants/default")).json()["quotas"] == UNLIMITED


async def test_infinity_is_no_quota(running: Running) -> None:
    """JSON of some writers has it."""
    headers = {"content-type": "application/json"}
    for word in (b"Infinity", b"NaN", b"1e999"):
        body = b'{"tokens_per_second": %s}' % word
        answer = await running.client.put("/v1/tenants/default", content=body, headers=headers)
        assert answer.status_code in (400, 422), answer.text


async def test_unknown_tenants_are_not_found(running: Running) -> None:
    """Neither to read nor to change."""
    assert (await running.client.get("/v1/tenants/nobody")).status_code == 404
    assert (await running.client.put("/v1/tenants/nobody", json={})).status_code == 404


async def test_requests_over_the_rate_are_refused(shelf: Running) -> None:
    """429 with a time to come back; successful answers say what is left. The operator's own routes are not counted."""
    await limit(shelf, requests_per_second=0.02)
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
    await limit(shelf)
    assert "ratelimit-limit" not in (await shelf.predict("demo", "good")).headers


async def test_tokens_over_the_rate_are_refused(shelf: Running) -> None:
    """To the token; and a refused request was one of the tenant's requests nevertheless."""
    tokens = (await shelf.predict("demo", "good")).json()["usage"]["tokens"]
    await limit(shelf, tokens_per_second=(2 * tokens + 1) / 1000, requests_per_second=0.003)
    assert (await shelf.predict("demo", "good")).status_code == 200
    assert (await shelf.predict("demo", ["good", "good"])).status_code == 429
    assert (await shelf.predict("demo", "good")).status_code == 200
    assert "may send 3 requests in 1000 s" in (await shelf.predict("demo", "good")).json()["error"]["message"]


async def test_each_part_of_a_mixed_request_pays_for_itself(shelf: Running) -> None:
    """One that is over the rate has its own error, the others their answers."""
    tokens = (await shelf.predict("demo", "good")).json()["usage"]["tokens"]
    await limit(shelf, tokens_per_second=2 * tokens / 1000)
    answer = await shelf.predict_mixed(*[{"task": "demo", "input": "good"}] * 3)
    outcomes = sorted(result.get("error", {}).get("code", "answered") for result in answer.json()["results"])
    assert outcomes == ["answered", "answered", "quota_exceeded"]


async def test_a_request_that_never_fits_is_too_large(shelf: Running) -> None:
    """Waiting would not help."""
    await limit(shelf, tokens_per_second=0.001)
    answer = await shelf.predict("demo", "good")
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


async def test_requests_at_a_time(shelf: Running, hold_runner: Any) -> None:
    """One more than allowed is refused, not queued; then there is room again."""
    await limit(shelf, max_concurrent_requests=1)
    async with hold_runner():
        first = asyncio.ensure_future(shelf.predict("demo", "good"))
        await asyncio.sleep(0.1)
        second = await shelf.predict("demo", "good")
    assert (second.status_code, (await first).status_code) == (429, 200)
    assert (await shelf.predict("demo", "good")).status_code == 200
    assert not shelf.app.state.enforcer.in_flight


async def test_tenants_and_keys_are_listed_in_pages(serve: Serve) -> None:
    """Tenants in order of name, keys oldest first; a cursor that leads nowhere is told."""
    async with serve(admin_key="k" * 40) as running:
        running.client.headers["authorization"] = f"Bearer {'k' * 40}"
        for name in ("b", "c", "a"):
            assert (await running.client.post("/v1/tenants", json={"name": name})).status_code == 201
            body = {"tenant": name, "scopes": ["predict"]}
            assert (await running.client.post("/v1/keys", json=body)).status_code == 201
        for path, entries, key, names in (
            ("/v1/tenants", "tenants", "name", ["a", "b", "c", "default"]),
            ("/v1/keys", "keys", "tenant", ["b", "c", "a"]),
        ):
            found, cursor = [], ""
            while cursor is not None:
                page = (await running.client.get(path, params={"limit": 2, "cursor": cursor})).json()
                assert len(page[entries]) <= 2
                found += [one[key] for one in page[entries]]
                cursor = page["next_cursor"]
            assert found == names
        assert (await running.client.get("/v1/keys", params={"cursor": "nobody"})).status_code == 404


async def test_a_full_shelf_is_507(
    shelf: Running, bert: Backbone, make_artifact: Callable[..., bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """By bytes or by number; versions of an adapter that is there need no further place for it. It is no fault."""
    await limit(shelf, max_adapters=1)
    other = await shelf.upload(make_artifact(bert, "bitfit", seed=1), "other")
    assert (other.status_code, other.json()["error"]["code"]) == (507, "storage_full")
    assert (await shelf.upload(make_artifact(bert, "bitfit", seed=1), "demo")).status_code == 201
    await limit(shelf, max_stored_bytes=1)
    again = await shelf.upload(make_artifact(bert, "bitfit", seed=2), "demo")
    assert (again.status_code, again.json()["error"]["code"]) == (507, "storage_full")
    assert again.headers["retry-after"] == "60"
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []


async def test_what_is_over_a_quota_leaves_nothing(
    shelf: Running, bert: Backbone, make_artifact: Callable[..., bytes], tmp_path: Path
) -> None:
    """Neither on the disk nor on the device, however often a tenant tries."""
    (stored,), used_bytes = stored_files(tmp_path / "store"), shelf.service.slots.device.used_bytes
    await limit(shelf, max_stored_bytes=stored.stat().st_size)
    for seed in (1, 2):
        assert (await shelf.upload(make_artifact(bert, "bitfit", seed=seed), "demo")).status_code == 507
    assert stored_files(tmp_path / "store") == [stored]
    assert shelf.service.slots.device.used_bytes == used_bytes


async def test_what_is_not_recorded_does_not_stay_on_the_device(
    shelf: Running, bert: Backbone, make_artifact: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the quota was reached by another upload meanwhile."""
    used_bytes = shelf.service.slots.device.used_bytes
    await limit(shelf, max_stored_bytes=2**40)

    async def meanwhile(*_: object, **__: object) -> None:
        await limit(shelf, max_stored_bytes=0)

    monkeypatch.setattr(shelf.service.store.registry, "require_room", meanwhile)
    assert (await shelf.upload(make_artifact(bert, "bitfit", seed=1), "demo")).status_code == 507
    await until(lambda: shelf.service.slots.device.used_bytes == used_bytes)


async def test_replicas_share_a_tenants_rate(serve: Serve, tmp_path: Path) -> None:
    """With Redis between them, what one has let in the other does not."""
    with redis_server.running(tmp_path) as redis:
        async with serve(rate_store=redis.url) as one, serve(rate_store=redis.url) as other:
            await limit(one, requests_per_second=0.003)
            await other.service.store.sync.catch_up()
            asked = [await running.client.get("/info") for running in (one, other, one, other, one)]
    assert [answer.status_code for answer in asked] == [200, 200, 200, 429, 429]
    assert [answer.headers["ratelimit-remaining"] for answer in asked] == ["2", "1", "0", "0", "0"]


async def test_a_text_costs_what_it_may_become(
    serve: Serve, t5: Backbone, t5_directory: Path, make_artifact: Callable[..., bytes]
) -> None:
    """The input's tokens and the most that may be written, for each beam: known before anything is computed."""
    async with serve(backbone=str(t5_directory)) as running:
        await running.upload(make_artifact(t5, "lora", task_type="text2text"), "demo")
        tokens = (await running.predict("demo", "good")).json()["usage"]["tokens"]
        # A number of tokens that takes the longest window, where a request is compared with all of them.
        spare = next(spare for spare in range(5, 15) if (tokens + spare) % 10)
        await limit(running, tokens_per_second=(tokens + spare) / 1000)
        assert (await running.predict("demo", "good", max_new_tokens=spare + 1)).status_code == 413
        assert (await running.predict("demo", "good", max_new_tokens=spare, num_beams=2)).status_code == 413
        assert (await running.predict("demo", "good", max_new_tokens=spare)).status_code == 200
        assert (await running.predict("demo", "good", max_new_tokens=1)).status_code == 429


async def test_every_text_of_a_request_costs_what_it_may_become(
    serve: Serve, t5: Backbone, t5_directory: Path, make_artifact: Callable[..., bytes]
) -> None:
    """Many inputs in one request are no way around the tokens that a tenant may use."""
    async with serve(backbone=str(t5_directory)) as running:
        await running.upload(make_artifact(t5, "lora", task_type="text2text"), "demo")
        tokens = (await running.predict("demo", ["good"] * 3)).json()["usage"]["tokens"]
        spare = next(spare for spare in range(3, 12, 3) if (tokens + spare) % 10)
        await limit(running, tokens_per_second=(tokens + spare) / 1000)
        assert (await running.predict("demo", ["good"] * 3, max_new_tokens=spare // 3 + 1)).status_code == 413
        assert (await running.predict("demo", ["good"] * 3, max_new_tokens=spare // 3)).status_code == 200
