"""Two tenants: each changes and sees only its own adapters."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import httpx2
import pytest
from peltier_backbone.backbone import Backbone

from tests.server.conftest import Running, Serve, make_client

ADMIN = {"authorization": "Bearer admin-of-the-server"}


@dataclass(frozen=True)
class Tenant:
    """A key of a tenant, and what it can do."""

    client: httpx2.AsyncClient
    prefix: str

    async def upload(self, data: bytes, name: str) -> dict[str, object]:
        answer = await self.client.post("/v1/adapters", files={"file": data}, data={"name": name})
        assert answer.status_code == 201, answer.text
        version: dict[str, object] = answer.json()
        return version

    async def predict(self, task: str) -> httpx2.Response:
        return await self.client.post(f"/v1/tasks/{task}/predict", json={"inputs": "bad"})


@dataclass(frozen=True)
class Town:
    """One server with two tenants."""

    running: Running
    acme: Tenant
    zenith: Tenant

    async def audit(self, **query: str) -> list[dict[str, object]]:
        answer = await self.running.client.get("/v1/audit", params=query, headers=ADMIN)
        records: list[dict[str, object]] = answer.json()["records"]
        return records


async def move_in(running: Running, name: str) -> Tenant:
    await running.client.post("/v1/tenants", json={"name": name}, headers=ADMIN)
    asked = {"tenant": name, "scopes": ["predict", "publish"]}
    key = (await running.client.post("/v1/keys", json=asked, headers=ADMIN)).json()
    client = make_client(running.app)
    client.headers["authorization"] = f"Bearer {key['key']}"
    return Tenant(client, key["prefix"])


@pytest.fixture
async def town(serve: Serve, bert: Backbone, make_artifact: Callable[..., bytes]) -> AsyncIterator[Town]:
    """Both tenants have an adapter `film`, acme in two versions; acme's `secret` is its own."""
    async with serve(admin_key="admin-of-the-server") as running:
        town = Town(running, await move_in(running, "acme"), await move_in(running, "zenith"))
        for seed, (tenant, name) in enumerate(
            [(town.acme, "film"), (town.acme, "film"), (town.acme, "secret"), (town.zenith, "film")]
        ):
            await tenant.upload(make_artifact(bert, "bitfit", name="x", seed=seed), name)
        yield town
        for tenant in (town.acme, town.zenith):
            await tenant.client.aclose()


async def test_a_name_means_the_callers_own_adapter(town: Town) -> None:
    for tenant, owner, version, names in (
        (town.acme, "acme", 2, ["film", "secret"]),
        (town.zenith, "zenith", 1, ["film"]),
    ):
        adapter = (await tenant.predict("film")).json()["adapter"]
        assert (adapter["tenant"], adapter["version"]) == (owner, version)
        listed = (await tenant.client.get("/v1/adapters")).json()["adapters"]
        assert [one["name"] for one in listed] == names
        assert {one["tenant"] for one in listed} == {owner}
        assert len((await tenant.client.get("/v1/adapters/film/versions")).json()["versions"]) == version
        models = (await tenant.client.get("/v1/models")).json()["data"]
        assert [one["id"] for one in models] == ["_backbone", *names]


async def test_a_public_adapter_is_used_by_others_and_changed_by_none(town: Town) -> None:
    """By its full name, with its aliases; its owner's list alone shows it, and closing it closes it at once."""
    await town.acme.client.put("/v1/adapters/film/aliases/live", json={"version": 1})
    assert (await town.zenith.predict("acme:film")).status_code == 404
    await town.acme.client.patch("/v1/adapters/film", json={"public": True})
    answer = await town.zenith.predict("acme:film@live")
    assert (answer.json()["adapter"]["tenant"], answer.headers["x-adapter-version"]) == ("acme", "1")
    assert (await town.zenith.predict("acme:film")).json()["adapter"]["version"] == 2
    assert (await town.zenith.client.get("/v1/adapters")).json()["adapters"][0]["tenant"] == "zenith"
    assert (await town.zenith.client.delete("/v1/adapters/acme:film")).status_code == 404
    await town.acme.client.patch("/v1/adapters/film", json={"public": False})
    assert (await town.zenith.predict("acme:film")).status_code == 404


async def test_the_log_names_the_key_that_did_it(town: Town) -> None:
    """And the tenant whose adapter it was; what a key is not allowed to do is not there."""
    await town.zenith.client.delete("/v1/adapters/film")
    record = (await town.audit(tenant="zenith"))[0]
    assert (record["actor"], record["action"], record["subject"]) == (
        f"key:{town.zenith.prefix}",
        "delete_adapter",
        "film",
    )
    assert (await town.zenith.client.get("/v1/audit")).status_code == 403
    assert all(one["tenant"] == "acme" for one in await town.audit(tenant="acme"))


async def test_the_same_bytes_are_one_blob_and_two_tenants_versions(town, bert, make_artifact):
    """Neither learns from status, number or time of a deletion that the other has them too."""
    data = make_artifact(bert, "bitfit", name="x", seed=9)
    for tenant in (town.acme, town.zenith):
        assert (await tenant.upload(data, "same"))["version"] == 1
    await town.acme.client.delete("/v1/adapters/same")
    assert (await town.zenith.predict("same")).status_code == 200


async def test_requests_are_counted_for_their_tenant(town: Town) -> None:
    await town.acme.predict("film")
    async with make_client(town.running.app) as stranger:
        await stranger.get("/v1/adapters")
    page = (await town.running.client.get("/metrics", headers=ADMIN)).text
    assert 'peltier_requests_total{code="200",tenant="acme"} 1.0' in page
    assert 'peltier_requests_total{code="401",tenant="_nobody"} 1.0' in page
    assert 'peltier_queue_tokens{tenant="acme"} 0.0' in page
