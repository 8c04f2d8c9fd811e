"""The answers of Ray's proxy while it knows no application, and those of applications."""

from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from peltier_server.extensions.ray.proxy import MIDDLEWARE, NotReadyWithoutRoutes
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send


async def ask(app: ASGIApp) -> httpx2.Response:
    """The answer of an app behind the middleware."""
    transport = httpx2.ASGITransport(NotReadyWithoutRoutes(app))
    async with httpx2.AsyncClient(transport=transport, base_url="http://ray") as client:
        return await client.get("/v1/tasks/a/predict")


async def test_the_404_of_the_proxy_becomes_not_ready() -> None:
    """It is the one of the installed Ray."""
    from ray.serve._private.proxy import HTTPProxy

    async def without_routes(scope: Scope, receive: Receive, send: Send) -> None:
        proxy: Any = SimpleNamespace()
        request: Any = SimpleNamespace(path=scope["path"])
        async for message in HTTPProxy.not_found_response(proxy, request):
            if isinstance(message, dict):
                await send(message)

    answer = await ask(without_routes)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"] == {
        "code": "not_ready",
        "message": "Ray's proxy knows no replica of this server yet",
        "details": [],
    }


async def _pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@pytest.mark.parametrize(
    "answer",
    [
        PlainTextResponse("adapter 'a' does not exist", 404),
        Response(status_code=404),
        StreamingResponse(_pieces(b"not ", b"here"), 404),
        PlainTextResponse("fine"),
    ],
    ids=["text", "empty", "pieces", "success"],
)
async def test_answers_of_applications_pass(answer: Response) -> None:
    found = await ask(answer)
    expected = b"not here" if isinstance(answer, StreamingResponse) else answer.body
    assert (found.status_code, found.content) == (answer.status_code, expected)


def test_ray_finds_the_middleware() -> None:
    from ray.serve._private.http_util import validate_http_proxy_callback_return
    from ray.serve._private.utils import call_function_from_import_path

    found: Sequence[Any] = validate_http_proxy_callback_return(call_function_from_import_path(MIDDLEWARE))
    assert [one.cls for one in found] == [NotReadyWithoutRoutes]
