"""Keys, tenants and the audit log over HTTP."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from peltier_backbone.backbone import Backbone
from peltier_client import cli
from peltier_server.catalog.sync import _POLL_SECONDS

from tests.server.conftest import Running, Serve, read_again
from tests.support.postgres_server import PostgresServer
from tests.support.rate_windows import stand_still

UNLIMITED = {
    "requests_per_second": None,
    "tokens_per_second": None,
    "max_concurrent_requests": None,
    "max_stored_bytes": None,
    "max_adapters": None,
    "max_trainings": None,
    "max_training_rows": None,
    "max_training_minutes_per_day": None,
    "weight": 1.0,
}


async def make(running: Running, *scopes: str, key: str | None = None, **given: object) -> httpx2.Response:
    return await running.client.post("/v1/keys", json={"scopes": scopes, **given}, headers=bearer(key))


def bearer(key: str | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}


async def test_the_first_key_closes_the_door_at_once(running: Running) -> None:
    """Only its creator has it; every other caller, also on this machine, needs a key from then on."""
    assert (await running.client.get("/info")).status_code == 200
    made = await make(running, "admin", "predict", note="the operator's")
    assert made.status_code == 201
    assert (await running.client.get("/info")).status_code == 401
    assert (await running.client.get("/info", headers=bearer(made.json()["key"]))).status_code == 200


async def test_a_key_is_shown_once(caller: Running) -> None:
    """Not in lists, not in the audit log, not in the database; and no cache keeps the one answer."""
    made = await make(caller, "admin", "predict", tenant=caller.tenant, note="a colleague's")
    body = made.json()
    assert made.headers["cache-control"] == "no-store"
    key, secret = body["key"], body["key"].split("_", 2)[2]
    own, listed = (await caller.client.get(f"/v1/keys?tenant={caller.tenant}", headers=bearer(key))).json()["keys"]
    assert listed == {name: value for name, value in body.items() if name != "key"}
    assert listed["scopes"] == ["admin", "predict"]
    assert (listed["note"], listed["tenant"]) == ("a colleague's", caller.tenant)
    assert listed["created_by"] == f"key:{own['prefix']}"
    audit = await caller.client.get("/v1/audit", headers=bearer(key))
    assert listed["prefix"] in audit.text
    assert secret not in audit.text
    database = Path(caller.service.settings.store.registry.removeprefix("sqlite+aiosqlite:///"))
    for file in database.parent.glob("registry.db*"):
        assert secret.encode() not in file.read_bytes()


async def test_a_revoked_key_ends_at_once(caller: Running) -> None:
    """It stays in the list, as revoked; a second time changes nothing."""
    made = (await make(caller, "predict", tenant=caller.tenant)).json()
    assert (await caller.client.get("/info", headers=bearer(made["key"]))).status_code == 200
    for _ in range(2):
        gone = await caller.client.delete(f"/v1/keys/{made['prefix']}")
        assert gone.status_code == 204
        assert (await caller.client.get("/info", headers=bearer(made["key"]))).status_code == 401
    listed = (await caller.client.get(f"/v1/keys?tenant={caller.tenant}")).json()["keys"]
    assert [key["revoked_at"] is None for key in listed] == [True, False]


async def test_a_key_expires_by_itself(caller: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    end = datetime.now(UTC) + timedelta(hours=1)
    key = (await make(caller, "predict", expires_at=end.isoformat())).json()["key"]
    for seconds, status in ((-0.001, 200), (0, 401)):
        now = end + timedelta(seconds=seconds)
        monkeypatch.setattr(caller.app.state.keyring, "now", lambda now=now: now)
        assert (await caller.client.get("/info", headers=bearer(key))).status_code == status


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
    for body, status, message in NO_KEYS:
        answer = await running.client.post("/v1/keys", json=body)
        assert (answer.status_code, message in answer.text) == (status, True), answer.text
        assert (await running.client.get("/v1/keys")).json()["keys"] == []


async def test_a_key_of_one_tenant_cannot_read_the_metrics_of_all(caller: Running) -> None:
    """The operator's tenant may have such keys, and so may an admin of any tenant."""
    refused = await make(caller, "metrics", "predict", tenant=caller.tenant)
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        422,
        "the scope 'metrics' shows all tenants' adapters, so its key is of the tenant 'default', not "
        f"{caller.tenant!r}",
    )
    assert (await make(caller, "metrics", "admin", tenant=caller.tenant)).status_code == 201
    assert (await make(caller, "metrics")).status_code == 201


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


async def test_unknown_prefixes_cannot_be_revoked(caller: Running) -> None:
    for prefix in ("zzzzzzzz", "x", "%00", "a" * 300):
        assert (await caller.client.delete(f"/v1/keys/{prefix}")).status_code in (404, 422), prefix


async def test_keys_survive_a_restart(serve: Serve) -> None:
    """Under the secret that lies beside the registry."""
    async with serve() as running:
        key = (await make(running, "admin", "predict")).json()["key"]
    async with serve() as running:
        assert (await running.client.get("/info")).status_code == 401
        assert (await running.client.get("/info", headers=bearer(key))).status_code == 200


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def shared(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "sqlite":
        return {}
    server: PostgresServer = request.getfixturevalue("postgres")
    return {"registry": server.url(server.create_database()), "secret": "s" * 32}


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
    await read_again(running)
    return (await running.client.get("/v1/schema/artifact", headers=bearer(key))).status_code


def test_the_command_line_makes_the_first_key(listen, monkeypatch, capsys):
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


async def test_a_tenant_is_made_once(caller: Running) -> None:
    name = f"{caller.tenant}-b"
    made = await caller.client.post("/v1/tenants", json={"name": name, "quotas": {"max_adapters": 3}})
    assert (made.status_code, made.json()["quotas"]) == (201, {**UNLIMITED, "max_adapters": 3})
    assert (await caller.client.get(f"/v1/tenants/{name}")).json() == made.json()
    again = await caller.client.post("/v1/tenants", json={"name": name})
    assert (again.status_code, again.json()["error"]["code"]) == (409, "conflict")


async def test_usage_stands_beside_quotas(caller, bert, make_artifact, monkeypatch):
    stand_still(monkeypatch)
    assert (await caller.upload(make_artifact(bert, "bitfit"), "demo")).status_code == 201

    async def usage() -> dict[str, Any]:
        answer = await caller.client.get(f"/v1/tenants/{caller.tenant}/usage")
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    (adapter,) = (await caller.client.get("/v1/adapters")).json()["adapters"]
    stored = {"adapters": 1, "stored_bytes": adapter["latest"]["size_bytes"]}
    trained = {"trainings": 0, "training_minutes": 0.0}
    assert await usage() == {"requests": None, "tokens": None, "concurrent_requests": 0, **stored, **trained}
    await caller.limit(requests_per_second=0.1, tokens_per_second=10)
    assert (await usage())["requests"] == {"used": 0, "limit": 1, "seconds": 10}
    answer = await caller.predict("demo", "good")
    after = await usage()
    assert after["requests"]["used"] == 1
    assert after["tokens"] == {"used": answer.json()["usage"]["tokens"], "limit": 100, "seconds": 10}
    assert (await caller.client.get("/v1/tenants/nobody/usage")).status_code == 404


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


async def test_what_is_no_quota_is_refused(caller: Running) -> None:
    for quotas in NO_QUOTAS:
        answer = await caller.client.put(f"/v1/tenants/{caller.tenant}", json=quotas)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_input"), quotas
        assert (await caller.client.get(f"/v1/tenants/{caller.tenant}")).json()["quotas"] == UNLIMITED


async def test_infinity_is_no_quota(caller: Running) -> None:
    """JSON of some writers has it."""
    headers = {"content-type": "application/json"}
    for word in (b"Infinity", b"NaN", b"1e999"):
        body = b'{"tokens_per_second": %s}' % word
        answer = await caller.client.put(f"/v1/tenants/{caller.tenant}", content=body, headers=headers)
        assert answer.status_code in (400, 422), answer.text


async def test_unknown_tenants_are_not_found(caller: Running) -> None:
    assert (await caller.client.get("/v1/tenants/nobody")).status_code == 404
    assert (await caller.client.put("/v1/tenants/nobody", json={})).status_code == 404


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


@pytest.fixture
async def busy(caller: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> Running:
    """A tenant that has called everything that changes something once."""
    for seed in (0, 1):
        await caller.upload(make_artifact(bert, "bitfit", name="a", seed=seed))
    client, a = caller.client, "/v1/adapters/a"
    for call in (
        client.put(f"{a}/aliases/live", json={"version": 1}),
        client.put(f"{a}/aliases/live", json={"versions": {"1": 0.5, "2": 0.5}}),
        client.post(f"{a}/aliases/live/rollback"),
        client.delete(f"{a}/aliases/live"),
        client.post(f"{a}/versions/1/deprecate", json={"reason": "old"}),
        client.patch(a, json={"public": True}),
        client.delete(f"{a}/versions/1"),
        client.post(f"{a}/versions/1/undelete"),
        client.delete(a),
    ):
        assert (await call).is_success
    return caller


async def test_every_change_is_in_the_log_with_its_actor(busy: Running) -> None:
    """Newest first; what failed or changed nothing is not there."""
    await busy.client.delete("/v1/adapters/nope")
    await busy.upload(b"nonsense")
    records = (await busy.client.get("/v1/audit", params={"actor": busy.actor})).json()["records"]
    assert [(record["action"], record["subject"]) for record in reversed(records)] == [
        ("publish", "a@1"),
        ("publish", "a@2"),
        ("set_alias", "a@live"),
        ("set_alias", "a@live"),
        ("rollback_alias", "a@live"),
        ("delete_alias", "a@live"),
        ("deprecate", "a@1"),
        ("set_public", "a"),
        ("delete_version", "a@1"),
        ("undelete", "a@1"),
        ("delete_adapter", "a"),
    ]
    assert {record["actor"] for record in records} == {busy.actor}
    assert {record["tenant"] for record in records} == {busy.tenant}
    assert records[-4]["detail"] == {"split": {"1": 0.5, "2": 0.5}}


async def test_callers_of_a_server_without_keys_are_local_in_the_log(running, bert, make_artifact):
    assert (await running.upload(make_artifact(bert, "bitfit"), "a")).status_code == 201
    assert (await running.client.put("/v1/adapters/a/aliases/live", json={"version": 1})).is_success
    records = (await running.client.get("/v1/audit")).json()["records"]
    assert [(one["action"], one["actor"]) for one in records] == [("set_alias", "local"), ("publish", "local")]


async def test_the_log_is_filtered(busy: Running) -> None:
    async def ids(**query: object) -> list[int]:
        answer = await busy.client.get("/v1/audit", params={"tenant": busy.tenant, **query})
        return [record["id"] for record in answer.json()["records"]]

    records = (await busy.client.get("/v1/audit", params={"actor": busy.actor})).json()["records"]
    set_aliases = [record["id"] for record in records if record["action"] == "set_alias"]
    assert await ids(action="set_alias") == set_aliases
    assert await ids(action="set_alias", limit=1, cursor=set_aliases[0]) == set_aliases[1:]
    assert await ids(actor=busy.actor) == [record["id"] for record in records]
    assert await ids(actor="key:nobody") == []
    middle = records[4]
    assert await ids(since=middle["at"]) == [record["id"] for record in records[:5]]
    assert await ids(until=middle["at"], actor=busy.actor) == [record["id"] for record in records[5:]]
    assert await ids(since=middle["at"], action="set_alias") == []


WRONG_QUERIES = ["limit=0", "limit=x", "cursor=x", f"cursor={10**30}", "tenant=%00", "tenant=A%20B"]
WRONG_QUERIES += ["actor=", "action=a%00", "since=yesterday", "until=2026-11-21T00:00:00"]


async def test_wrong_queries_are_refused(caller: Running) -> None:
    for query in WRONG_QUERIES:
        answer = await caller.client.get(f"/v1/audit?{query}")
        assert answer.status_code == 422, query
        assert answer.json()["error"]["message"], query
