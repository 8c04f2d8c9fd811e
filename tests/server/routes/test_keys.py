"""Keys over HTTP, from the first one to the last."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest
from peltier_client import cli
from peltier_server.catalog.sync import _POLL_SECONDS

from benchmarks.common.postgres_server import run_postgres
from tests.server.conftest import Listen, Running, Serve, read_again


async def make(running: Running, *scopes: str, key: str | None = None, **given: object) -> httpx2.Response:
    """`POST /v1/keys`, by the bearer of `key`."""
    return await running.client.post("/v1/keys", json={"scopes": scopes, **given}, headers=bearer(key))


def bearer(key: str | None) -> dict[str, str]:
    """How a key is sent."""
    return {} if key is None else {"authorization": f"Bearer {key}"}


async def test_the_first_key_closes_the_door_at_once(running: Running) -> None:
    """Only its creator has it; every other caller, also on this machine, needs a key from then on."""
    assert (await running.client.get("/info")).status_code == 200
    made = await make(running, "admin", "predict", note="the operator's")
    assert made.status_code == 201
    assert (await running.client.get("/info")).status_code == 401
    assert (await running.client.get("/info", headers=bearer(made.json()["key"]))).status_code == 200


async def test_a_key_is_shown_once(running: Running) -> None:
    """Not in lists, not in the audit log, not in the database; and no cache keeps the one answer."""
    made = await make(running, "admin", "predict", note="the operator's")
    body = made.json()
    assert made.headers["cache-control"] == "no-store"
    key, secret = body["key"], body["key"].split("_", 2)[2]
    (listed,) = (await running.client.get("/v1/keys", headers=bearer(key))).json()["keys"]
    assert listed == {name: value for name, value in body.items() if name != "key"}
    assert listed["scopes"] == ["admin", "predict"]
    assert (listed["note"], listed["tenant"], listed["created_by"]) == ("the operator's", "default", "local")
    audit = await running.client.get("/v1/audit", headers=bearer(key))
    assert listed["prefix"] in audit.text
    assert secret not in audit.text
    database = Path(running.service.settings.store.registry.removeprefix("sqlite+aiosqlite:///"))
    for file in database.parent.glob("registry.db*"):
        assert secret.encode() not in file.read_bytes()


async def test_a_revoked_key_ends_at_once(running: Running) -> None:
    """It stays in the list, as revoked; a second time changes nothing."""
    admin = (await make(running, "admin")).json()["key"]
    made = (await make(running, "predict", key=admin)).json()
    assert (await running.client.get("/info", headers=bearer(made["key"]))).status_code == 200
    for _ in range(2):
        gone = await running.client.delete(f"/v1/keys/{made['prefix']}", headers=bearer(admin))
        assert gone.status_code == 204
        assert (await running.client.get("/info", headers=bearer(made["key"]))).status_code == 401
    listed = (await running.client.get("/v1/keys", headers=bearer(admin))).json()["keys"]
    assert [key["revoked_at"] is None for key in listed] == [True, False]


async def test_a_key_expires_by_itself(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the moment that was asked for."""
    admin = (await make(running, "admin")).json()["key"]
    end = datetime.now(UTC) + timedelta(hours=1)
    key = (await make(running, "predict", key=admin, expires_at=end.isoformat())).json()["key"]
    for seconds, status in ((-0.001, 200), (0, 401)):
        now = end.timestamp() + seconds
        monkeypatch.setattr("peltier_server.auth.keyring.time", SimpleNamespace(time=partial(float, now)))
        assert (await running.client.get("/info", headers=bearer(key))).status_code == status


NO_KEYS = [
    ({"scopes": []}, 422, "scopes"),
    ({"scopes": ["predict", "root"]}, 422, "scopes"),
    ({"scopes": ["predict", "publish"]}, 409, "the first key must have the scope admin"),
    ({"scopes": ["admin"], "tenant": "nobody"}, 404, "tenant 'nobody' does not exist"),
    ({"scopes": ["predict"], "tenant": "No Name"}, 422, "tenant"),
    ({"scopes": ["predict"], "expires_at": "2020-01-01T00:00:00Z"}, 422, "must have some time left"),
    ({"scopes": ["predict"], "expires_at": "0001-01-01T00:00:00+23:59"}, 422, "must have some time left"),
    ({"scopes": ["predict"], "expires_at": "9999-12-31T23:59:59-23:59"}, 422, "9999"),
    ({"scopes": ["predict"], "expires_at": "2099-01-01T00:00:00"}, 422, "timezone"),
    ({"scopes": ["predict"], "note": "x" * 201}, 422, "note"),
    ({"scopes": ["admin"], "note": "\0"}, 422, "note"),
    ({"scopes": ["predict"], "secret": "mine"}, 422, "secret is unknown here"),
]


async def test_what_cannot_be_a_key(running: Running) -> None:
    """Nothing is made, and an open server stays open."""
    for body, status, message in NO_KEYS:
        answer = await running.client.post("/v1/keys", json=body)
        assert (answer.status_code, message in answer.text) == (status, True), answer.text
        assert (await running.client.get("/v1/keys")).json()["keys"] == []


async def test_a_key_of_one_tenant_cannot_read_the_metrics_of_all(serve: Serve) -> None:
    """The operator's tenant may have such keys, and so may an admin of any tenant."""
    operator = "plt_of-the-operator"
    async with serve(admin_key=operator) as running:
        await running.client.post("/v1/tenants", json={"name": "a"}, headers=bearer(operator))
        refused = await make(running, "metrics", "predict", key=operator, tenant="a")
        assert (refused.status_code, refused.json()["error"]["message"]) == (
            422,
            "the scope 'metrics' shows all tenants' adapters, so its key is of the tenant 'default', not 'a'",
        )
        assert (await make(running, "metrics", "admin", key=operator, tenant="a")).status_code == 201
        assert (await make(running, "metrics", key=operator)).status_code == 201


async def test_the_last_admin_key_cannot_be_revoked(serve: Serve) -> None:
    """Unless the bearer of the settings' admin key can still make others."""
    async with serve() as running:
        first = (await make(running, "admin")).json()
        second = (await make(running, "admin", "predict", key=first["key"])).json()
        owner = bearer(second["key"])
        assert (await running.client.delete(f"/v1/keys/{first['prefix']}", headers=owner)).status_code == 204
        refused = await running.client.delete(f"/v1/keys/{second['prefix']}", headers=owner)
        assert (refused.status_code, "last with the scope admin" in refused.text) == (409, True)
        assert (await running.client.get("/v1/keys", headers=owner)).status_code == 200
    async with serve(admin_key="plt_of_the_operator") as running:
        owner = bearer("plt_of_the_operator")
        assert (await running.client.delete(f"/v1/keys/{second['prefix']}", headers=owner)).status_code == 204


async def test_unknown_prefixes_cannot_be_revoked(running: Running) -> None:
    """The answer is 404 for any prefix."""
    for prefix in ("zzzzzzzz", "x", "%00", "a" * 300):
        assert (await running.client.delete(f"/v1/keys/{prefix}")).status_code in (404, 422), prefix


async def test_keys_are_listed_by_tenant(running: Running) -> None:
    """Or all, oldest first."""
    await running.client.post("/v1/tenants", json={"name": "b"})
    admin = (await make(running, "admin")).json()["key"]
    await make(running, "predict", key=admin, tenant="b")
    for query, tenants in (("", ["default", "b"]), ("?tenant=b", ["b"]), ("?tenant=c", [])):
        listed = (await running.client.get(f"/v1/keys{query}", headers=bearer(admin))).json()["keys"]
        assert [key["tenant"] for key in listed] == tenants


async def test_keys_survive_a_restart(serve: Serve) -> None:
    """Under the secret that lies beside the registry."""
    async with serve() as running:
        key = (await make(running, "admin", "predict")).json()["key"]
    async with serve() as running:
        assert (await running.client.get("/info")).status_code == 401
        assert (await running.client.get("/info", headers=bearer(key))).status_code == 200


@pytest.fixture(params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Settings of replicas that share a registry."""
    if request.param == "sqlite":
        yield {}
        return
    with run_postgres() as server:
        yield {"registry": server.url(server.create_database()), "secret": "s" * 32}


async def test_revocation_reaches_another_replica_with_its_next_read(serve: Serve, shared: dict[str, str]) -> None:
    """Of the registry, which follows within a second; and so does a key that was made there."""
    assert _POLL_SECONDS < 1
    async with serve(**shared) as one, serve(**shared) as other:
        admin = (await make(one, "admin")).json()["key"]
        for _ in range(3):
            made = (await make(one, "predict", key=admin)).json()
            assert await status_after_read(other, made["key"]) == 200
            await one.client.delete(f"/v1/keys/{made['prefix']}", headers=bearer(admin))
            assert await status_after_read(other, made["key"]) == 401


async def status_after_read(running: Running, key: str) -> int:
    """The answer to the key after one more read of the registry."""
    await read_again(running)
    return (await running.client.get("/v1/schema/artifact", headers=bearer(key))).status_code


def test_the_command_line_makes_the_first_key(
    listen: Listen, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On an open server, which it shuts; then the key opens it again."""

    def peltier(*words: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["peltier", *words])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return caught.value.code or 0, capsys.readouterr().out.strip()

    with listen() as listening:
        monkeypatch.setenv("PELTIER_URL", listening.url)
        status, key = peltier("keys", "create", "--scope", "admin", "--scope", "predict")
        assert (status, key[:4]) == (0, "plt_")
        assert peltier("list")[0] == 1
        monkeypatch.setenv("PELTIER_API_KEY", key)
        assert peltier("list")[0] == 0
        assert peltier("tenants", "set", "default", "--max-adapters", "3")[0] == 0
        assert peltier("tenants", "list")[0] == 0
