"""The app has no middleware but this server's own."""

import pytest
from fastapi import APIRouter
from peltier_server.http.request_middleware import RequestMiddleware

from tests.server.conftest import IN_ONE_LOOP, Running

pytestmark = IN_ONE_LOOP


async def test_a_request_passes_our_layer_only(app_world: Running) -> None:
    """From the outermost to the router. The endpoints that the framework calls have its own two around them."""
    await app_world.client.get("/health")
    layers, app = list[type](), app_world.app.middleware_stack
    while app is not None:
        layers.append(type(app))
        app = getattr(app, "_app", None)
    assert layers == [RequestMiddleware, APIRouter]


async def test_an_unknown_address_and_method_are_answered(app_world: Running) -> None:
    for method, path, status, code in (
        ("GET", "/nowhere", 404, "not_found"),
        ("DELETE", "/health", 405, "method_not_allowed"),
        ("GET", "/v1/tasks/a/predict", 405, "method_not_allowed"),
    ):
        answer = await app_world.client.request(method, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_slash_at_the_end_redirects_nobody(app_world: Running, method: str) -> None:
    """A redirect would name the host that the caller sent."""
    answer = await app_world.client.request(method, "/v1/adapters/")
    assert answer.status_code == 404
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "/", "/health", "/ready", "/docs", "/info", "/metrics", "/v1/adapters", "/v1/models",
        pytest.param("/openapi.json", marks=pytest.mark.slow),  # costs the most, and is a page as /docs is
    ],
)  # fmt: skip
async def test_head_answers_as_get_does(app_world: Running, path: str) -> None:
    wanted, found = [await app_world.client.request(method, path) for method in ("GET", "HEAD")]
    changing = {"x-request-id", "content-length", "date"}
    assert (found.status_code, found.content) == (wanted.status_code, b"")
    assert set(found.headers) - changing == set(wanted.headers) - changing


async def test_head_is_refused_where_get_is(app_world: Running) -> None:
    answer = await app_world.client.head("/v1/predict")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
