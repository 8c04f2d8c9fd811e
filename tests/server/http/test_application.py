"""The app has no middleware but this server's own."""

from fastapi import APIRouter
from peltier_server.http.request_middleware import RequestMiddleware

from tests.server.conftest import Running


async def test_a_request_passes_our_layer_only(running: Running) -> None:
    """From the outermost to the router. The endpoints that the framework calls have its own two around them."""
    await running.client.get("/health")
    layers, app = list[type](), running.app.middleware_stack
    while app is not None:
        layers.append(type(app))
        app = getattr(app, "_app", None)
    assert layers == [RequestMiddleware, APIRouter]


async def test_an_unknown_address_and_method_are_answered(running: Running) -> None:
    """Without the framework's handler of exceptions, in the server's form."""
    for method, path, status, code in (
        ("GET", "/nowhere", 404, "not_found"),
        ("DELETE", "/health", 405, "method_not_allowed"),
        ("GET", "/v1/tasks/a/predict", 405, "method_not_allowed"),
    ):
        answer = await running.client.request(method, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
