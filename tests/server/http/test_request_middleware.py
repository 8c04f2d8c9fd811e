"""Every route needs a scope by default: the answer of each route to each kind of key."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
import pytest_asyncio
from fastapi import FastAPI
from fastapi.routing import APIRoute
from peltier_backbone.backbone import Backbone
from peltier_server.app import create_app
from peltier_server.extensions.settings import Settings
from peltier_server.http.request_middleware import OPEN_PATHS
from peltier_server.http.scoped_route import ScopedRoute, refuse_open_routes, require_scope
from peltier_server.routes.pages import KEYED_PATHS

from tests.server.conftest import ADMIN, IN_ONE_LOOP, Running, Serve, make_client

pytestmark = IN_ONE_LOOP
PATHS = {"task": "demo", "name": "demo", "model": "demo", "version": "1", "alias": "live", "tenant": "b"} | {
    "file_id": "file-1",
    "training_id": "trn_1",
    "job_id": "trn_1",
    "batch_id": "batch_1",
}

# The methods of each path, with the scopes that they need. A route that is not here, or no longer, fails the walk.
_CALLS = {
    "/v1/tasks/{task}/predict": "POST predict",
    "/v1/predict": "POST predict",
    "/v1/feedback": "POST predict",
    "/v1/compare": "POST predict",
    "/v1/completions": "POST predict",
    "/v1/embeddings": "POST predict",
    "/embed": "POST predict",
    "/embed_sparse": "POST predict",
    "/similarity": "POST predict",
    "/predict": "POST predict",
    "/classify": "POST predict",
    "/pooling": "POST predict",
    "/invocations": "POST predict",
    "/v2": "GET predict",
    "/v2/models/{model}": "GET predict",
    "/v2/models/{model}/ready": "GET predict",
    "/v2/models/{model}/versions/{version}": "GET predict",
    "/v2/models/{model}/versions/{version}/ready": "GET predict",
    "/v2/models/{model}/infer": "POST predict",
    "/v2/models/{model}/versions/{version}/infer": "POST predict",
    "/v2/repository/index": "POST predict",
    "/rerank": "POST predict",
    "/v1/rerank": "POST predict",
    "/v1/models": "GET predict",
    "/v1/models/{model}": "GET predict",
    "/v1/adapters": "GET predict, POST publish",
    "/v1/adapters/{name}": "GET predict, PATCH publish, DELETE publish",
    "/v1/adapters/{name}/versions": "GET predict",
    "/v1/adapters/{name}/versions/{version}": "GET predict, DELETE publish",
    "/v1/adapters/{name}/versions/{version}/artifact": "GET predict",
    "/v1/adapters/{name}/versions/{version}/manifest": "GET predict",
    "/v1/adapters/{name}/versions/{version}/report": "GET predict",
    "/v1/adapters/{name}/aliases": "GET predict",
    "/v1/adapters/{name}/aliases/{alias}": "GET predict, PUT publish, DELETE publish",
    "/v1/adapters/{name}/pin": "PUT publish, DELETE publish",
    "/v1/adapters/{name}/aliases/{alias}/history": "GET predict",
    "/info": "GET predict",
    "/v1/schema/artifact": "GET predict",
    "/v1/batches": "GET predict, POST predict",
    "/v1/batches/{batch_id}": "GET predict",
    "/v1/batches/{batch_id}/cancel": "POST predict",
    "/v2/repository/models/{model}/load": "POST publish",
    "/v2/repository/models/{model}/unload": "POST publish",
    "/v1/adapters/{name}/versions/{version}/undelete": "POST publish",
    "/v1/adapters/{name}/versions/{version}/deprecate": "POST publish",
    "/v1/adapters/{name}/aliases/{alias}/rollback": "POST publish",
    "/v1/adapters/{name}/aliases/{alias}/stop": "POST publish",
    "/v1/files": "GET predict or train, POST predict or train",
    "/v1/files/{file_id}": "GET predict or train, DELETE predict or train",
    "/v1/files/{file_id}/content": "GET predict or train",
    "/v1/trainings": "GET train, POST train",
    "/v1/trainings/{training_id}": "GET train, DELETE train",
    "/v1/trainings/{training_id}/events": "GET train",
    "/v1/trainings/{training_id}/pause": "POST train",
    "/v1/trainings/{training_id}/resume": "POST train",
    "/v1/trainings/{training_id}/cancel": "POST train",
    "/v1/fine_tuning/jobs": "GET train, POST train",
    "/v1/fine_tuning/jobs/{job_id}": "GET train",
    "/v1/fine_tuning/jobs/{job_id}/events": "GET train",
    "/v1/fine_tuning/jobs/{job_id}/checkpoints": "GET train",
    "/v1/fine_tuning/jobs/{job_id}/cancel": "POST train",
    "/v1/fine_tuning/jobs/{job_id}/pause": "POST train",
    "/v1/fine_tuning/jobs/{job_id}/resume": "POST train",
    "/v1/tenants": "GET admin, POST admin",
    "/v1/tenants/{tenant}": "GET admin, PUT admin",
    "/v1/tenants/{tenant}/usage": "GET admin",
    "/v1/keys": "GET admin, POST admin",
    "/v1/keys/{prefix}": "DELETE admin",
    "/v1/audit": "GET admin",
    "/metrics": "GET metrics",
}
SCOPES = {
    f"{method} {path}": scope
    for path, calls in _CALLS.items()
    for method, _, scope in (call.partition(" ") for call in calls.split(", "))
}
# Pages that any key may read.
PAGES = ("/docs", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css", "/openapi.json")


@dataclass
class House:
    """A server by its operator's client, and keys of every kind: by scope, of two tenants, expired, revoked."""

    running: Running
    keys: dict[str, str] = field(default_factory=dict)

    async def call(self, route: str, key: str | None, body: bytes = b"", **names: str) -> httpx2.Response:
        """A route with a body that it cannot use: `key` is one of `keys`, or what is sent in its place. The `names` in
        the path replace those of `PATHS`."""
        method, _, path = route.partition(" ")
        path = path.format(**{**PATHS, **names}, prefix="zzzzzzzz")
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.keys.get(key or '', key)}"}
        request = self.running.client.build_request(method, path, headers=headers, content=body)
        if key is None:
            del request.headers["authorization"]
        return await self.running.client.send(request)

    async def make(self, name: str, *scopes: str, tenant: str = "default", **given: object) -> str:
        body = {"tenant": tenant, "scopes": scopes, **given}
        answer = await self.running.client.post("/v1/keys", json=body)
        assert answer.status_code == 201, answer.text
        self.keys[name] = answer.json()["key"]
        prefix: str = answer.json()["prefix"]
        return prefix


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(open_app: Serve, bert: Backbone, make_artifact: Callable[..., bytes]) -> AsyncIterator[House]:
    async with open_app() as running:
        assert (await running.upload(make_artifact(bert, "bitfit"), "demo")).status_code == 201
        assert (await running.client.post("/v1/tenants", json={"name": "b"})).status_code == 201
        house = House(running)
        for scope in ("admin", "predict", "publish", "train", "metrics"):
            await house.make(scope, scope)
        await house.make("b", "predict", "publish", tenant="b")
        prefix = await house.make("revoked", "predict", "publish", "admin")
        assert (await running.client.delete(f"/v1/keys/{prefix}")).status_code == 204
        await _make_expired(house)
        yield house


async def _make_expired(house: House) -> None:
    issued = house.running.app.state.keyring.credentials.issue()
    await house.running.service.store.registry.create_key(
        "default",
        prefix=issued.prefix,
        digest=issued.digest,
        scopes=["predict", "publish", "admin"],
        expires_at=datetime.now(UTC) - timedelta(seconds=1),
        actor="test",
    )
    await house.running.service.store.sync.catch_up()
    house.keys["expired"] = issued.text


def shown(app: FastAPI) -> set[str]:
    return {f"{method.upper()} {path}" for path, item in app.openapi()["paths"].items() for method in item}


STRANGERS = [
    (None, "this server needs an API key in the header 'authorization: Bearer <key>'; no key was sent"),
    ("plt_wrong", "the API key is not one of this server's"),
    (f"plt_zzzzzzzz_{'x' * 43}", "the API key is not one of this server's"),
    ("expired", "expired"),
    ("revoked", "was revoked"),
]


@pytest.mark.parametrize(("stranger", "sentence"), STRANGERS)
async def test_no_route_answers_a_stranger(house: House, stranger: str | None, sentence: str) -> None:
    """No key, no key's form, an unknown, an expired and a revoked key: 401 everywhere, also where nothing is.

    The sentence tells a missing key from a wrong one, and whether a wrong one has a key's form is not told."""
    for route in [*SCOPES, *(f"GET {path}" for path in PAGES), "GET /v1/nothing", "PUT /info"]:
        answer = await house.call(route, stranger)
        assert answer.status_code == 401, (route, answer.text)
        assert answer.headers["www-authenticate"] == "Bearer"
        assert sentence in answer.text
        # Errors of the Open Inference Protocol have no code.
        assert route.partition(" ")[2].startswith(("/v2", "/embed_sparse")) or "unauthorized" in answer.text, route


@pytest.mark.parametrize("held", ["predict", "publish", "train", "admin", "metrics"])
async def test_each_scope_opens_its_own_routes_alone(house, held, bert, make_artifact):
    """The walk over all routes, each of which is named here with its scope; metrics are an admin's too."""
    own = f"of-{held}"
    assert (await house.running.upload(make_artifact(bert, "bitfit"), own)).status_code == 201
    opened = {held, "metrics"} if held == "admin" else {held}
    assert set(SCOPES) == shown(house.running.app) - {f"GET {path}" for path in OPEN_PATHS}
    # What deletes comes last.
    for route in sorted(SCOPES, key=lambda route: route.startswith("DELETE")):
        answer = await house.call(route, held, task=own, name=own, model=own)
        scopes = SCOPES[route].split(" or ")
        if opened.intersection(scopes):
            assert answer.status_code not in (401, 403), (route, answer.text)
        else:
            assert answer.status_code == 403, (route, answer.text)
            assert f"this needs the scope {' or '.join(map(repr, scopes))}" in answer.text


async def test_another_tenants_key_finds_nothing(house: House) -> None:
    named = [route for route in SCOPES if "{name}" in route or "{model}" in route]
    assert len(named) > 10
    for route in named:
        answer = await house.call(route, "b", b"{}")
        # A body that does not fit is 400 in the Open Inference Protocol.
        assert answer.status_code in (404, 400 if " /v2" in route else 422), (route, answer.text)
    assert (await house.call("GET /v1/adapters", "b")).json()["adapters"] == []
    assert [one["id"] for one in (await house.call("GET /v1/models", "b")).json()["data"]] == ["_backbone"]
    assert (await house.call("GET /v1/adapters", "predict")).json()["adapters"] != []


async def test_openapi_shows_the_scopes(house: House) -> None:
    for path, item in house.running.app.openapi()["paths"].items():
        for method, operation in item.items():
            scope = SCOPES.get(f"{method.upper()} {path}")
            assert operation.get("security") == (None if scope is None else [{"HTTPBearer": scope.split(" or ")}])


async def test_any_key_reads_the_pages(house: House) -> None:
    """What calls there are is no secret of the operator."""
    for path in PAGES:
        assert (await house.call(f"GET {path}", "predict")).status_code == 200, path


async def test_what_is_not_there_is_not_there_for_any_key(house: House) -> None:
    assert (await house.call("GET /v1/nothing", "predict")).status_code == 404
    assert (await house.call("PUT /info", "predict")).status_code == 405


@pytest.mark.parametrize("key", [None, "publish"])
async def test_a_body_is_not_read_before_the_scope(house: House, key: str | None) -> None:
    """For a caller without the scope the server parses and measures nothing."""
    for body in (b"{", b"x" * 10_000_000):
        answer = await house.call("POST /v1/tasks/{task}/predict", key, body)
        assert answer.status_code == (401 if key is None else 403)


async def test_the_probes_are_open(house: House) -> None:
    assert (await house.call("GET /health", None)).status_code == 200
    assert (await house.call("GET /ready", None)).status_code == 200


@pytest.fixture
def unstarted(settings_of: Callable[..., Settings]) -> FastAPI:
    return create_app(settings_of(admin_key=ADMIN))


@pytest_asyncio.fixture(loop_scope="module")
async def early(unstarted: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    async with make_client(unstarted) as opened:
        yield opened


async def test_strangers_are_turned_away_while_the_server_loads(early: httpx2.AsyncClient) -> None:
    """It need not be ready for that; only of what may be a key it cannot tell yet."""
    assert (await early.get("/info")).status_code == 401
    assert (await early.get("/info", headers={"authorization": f"Basic {ADMIN}"})).status_code == 401
    assert (await early.get("/info", headers={b"authorization": "Bearer schlüssel".encode()})).status_code == 401
    perhaps = await early.get("/info", headers={"authorization": f"Bearer plt_zzzzzzzz_{'x' * 43}"})
    assert (perhaps.status_code, perhaps.json()["error"]["code"]) == (503, "not_ready")
    assert perhaps.headers["retry-after"] == "1"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_the_admin_key_opens_at_any_time(early: httpx2.AsyncClient, scheme: str) -> None:
    """The scheme's name has no case."""
    answer = await early.get("/docs", headers={"authorization": f"{scheme} {ADMIN}"})
    assert answer.status_code == 200


async def test_a_route_without_a_scope_keeps_the_app_from_being_made(unstarted: FastAPI) -> None:
    """For a route of any class and name; a test that walks the routes might run too late."""
    refuse_open_routes(unstarted, KEYED_PATHS)
    for route in (
        APIRoute("/v1/open", lambda: None),
        APIRoute("/v1/open", lambda: None, name="openapi"),
        ScopedRoute("/v1/open", lambda: None),
    ):
        unstarted.router.routes.append(route)
        with pytest.raises(RuntimeError, match="route /v1/open names no scope"):
            refuse_open_routes(unstarted, KEYED_PATHS)
        unstarted.router.routes.remove(route)


async def test_a_route_without_a_scope_answers_nobody(serve: Serve) -> None:
    async with serve() as running:
        running.app.router.routes.append(ScopedRoute("/v1/open", lambda: "secret"))
        running.app.router.routes.append(
            ScopedRoute("/v1/shut", lambda: "shown", dependencies=[require_scope("predict")])
        )
        assert (await running.client.get("/v1/open")).status_code == 403
        assert (await running.client.get("/v1/shut")).json() == "shown"
