import asyncio
import inspect
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from peltier_client import AdapterNotFound, AsyncClient, Client, PeltierError, Predictions


@pytest.fixture
async def client(server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url, api_key="plt_secret") as client:
        yield client


def test_both_clients_offer_the_same() -> None:
    """Every public method of one is a method of the other, with the same parameters."""

    def public(cls: type) -> dict[str, list[inspect.Parameter]]:
        methods = inspect.getmembers(cls, inspect.isfunction)
        return {n: list(inspect.signature(m).parameters.values()) for n, m in methods if not n.startswith("_")}

    assert public(Client) == public(AsyncClient)


async def test_the_calls_of_a_day(client: AsyncClient, tmp_path: Path) -> None:
    """Publish, look, predict, fetch and delete."""
    assert (await client.upload(b"artifact", name="sst2")).version == 1
    assert [adapter.name async for adapter in client.adapters()] == ["nli", "sst2", "stsb"]
    assert (await client.adapter("sst2")).num_versions == 1
    assert [version.version for version in await client.versions("sst2")] == [2, 1]
    assert (await client.version("sst2", 1)).task.labels == ["negative", "positive"]
    assert (await client.predict("sst2", ["a gem of a film"]))[0].label == "positive"
    assert (await client.set_alias("sst2", "live", {1: 0.9, 2: 0.1})).versions == {1: 0.9, 2: 0.1}
    assert [alias.alias for alias in await client.aliases("sst2")] == ["live"]
    assert (await client.alias_history("sst2", "live"))[2].versions == {1: 1.0}
    assert (await client.rollback_alias("sst2", "live")).versions == {1: 0.9, 2: 0.1}
    await client.delete_alias("sst2", "live")
    assert (await client.deprecate("sst2@1", "old")).deprecation == "old"
    assert (await client.undelete("sst2@1")).version == 1
    assert (await client.set_public("sst2", True)).public
    assert [record.id async for record in client.audit()] == [3, 2, 1]
    assert (await client.download("sst2", 1, tmp_path / "a")).read_bytes() == b"artifact"
    await client.delete("sst2@1")
    assert await client.ready()
    assert (await client.health()).status == "ok"
    assert (await client.info()).num_adapters == 3
    assert "peltier_ready 1.0" in await client.metrics()


async def test_keys_and_tenants(client: AsyncClient) -> None:
    assert (await client.create_key("predict")).prefix == "abcdefgh"
    assert len(await client.keys()) == 2
    await client.revoke_key("abcdefgh")
    assert (await client.create_tenant("b")).name == "b"
    assert (await client.tenant("default")) == (await client.tenants())[0]
    assert (await client.tenant_usage("default")).requests is None
    assert (await client.set_tenant("default", weight=2)).quotas.weight == 2


async def test_calls_run_at_once(client: AsyncClient, server) -> None:
    """Many calls share the pool, and each gets its own answer."""
    many = await asyncio.gather(*(client.predict("sst2", ["x"] * count) for count in range(1, 21)))
    assert [len(predictions) for predictions in many] == list(range(1, 21))


async def test_tasks_of_one_text(client: AsyncClient, server) -> None:
    """Each task has its answer or its error, in order, by the name that the server gives."""
    found = await client.predict_tasks(["sst2", "missing"], "…", top_k=1)
    assert list(found) == ["sst2", "missing"]
    assert isinstance(found["sst2"], Predictions)
    assert isinstance(found["missing"], AdapterNotFound)
    body = {"tasks": ["sst2", "missing"], "input": "…", "parameters": {"top_k": 1}}
    assert json.loads(server.received[0].body) == body


async def test_a_full_queue_is_waited_out(client: AsyncClient, server, refuse) -> None:
    """503 and 429 are tried again, as the synchronous client does."""
    server.planned.extend([refuse(503, "queue_full", retry_after="0"), refuse(429, "quota_exceeded", retry_after="0")])
    assert (await client.predict("sst2", "text"))[0].label == "positive"
    assert len(server.received) == 3


async def test_each_call_of_a_task_names_its_session(server, answer) -> None:
    """Balancers hash `x-session-id`. A client with a key learns its tenant from the first answer; an open server has
    one tenant. Calls that name no task have no session."""
    async with AsyncClient(server.url, api_key="plt_secret") as client:
        server.planned.append(answer(404, b"", {"x-tenant": "acme"}))
        with pytest.raises(PeltierError):
            await client.predict("sst2", "…")
        await client.predict("sst2@3", "…")
        await client.embed("vectors", "…")
        await client.predict_many([("sst2", "…"), ("missing", "…")])
        await client.predict_tasks(["other:sst2", "missing"], "…")
        with pytest.raises(AdapterNotFound):
            await client.rerank("order", "…", ["…"])
        assert [piece async for piece in client.stream("e2e", "…")]
        await client.ready()
    tasks = ["acme/sst2", "acme/vectors", "acme/sst2", "other/sst2", "acme/order", "acme/e2e"]
    assert [one.headers.get("x-session-id") for one in server.received] == [None, *tasks, None]
    with Client(server.url) as opened:
        opened.predict("sst2", "…")
        opened.predict("stsb", "…")
    assert [one.headers["x-session-id"] for one in server.received[-2:]] == ["default/sst2", "default/stsb"]
