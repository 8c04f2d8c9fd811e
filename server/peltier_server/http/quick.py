"""The way of predictions, which are asked most: past what the framework does for any request."""

import re
from collections.abc import Awaitable, Callable
from functools import partial

from fastapi import Request, Response
from peltier_client.protocol import PredictRequest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peltier_server.auth.caller import Caller
from peltier_server.errors import ANSWERED, answer_error
from peltier_server.fairness.preparation import Preparation
from peltier_server.http.scoped_route import within_quotas

JSON = "application/json"
# Larger bodies cost far more than the framework does, and may have to be refused before they are read.
_MAX_BYTES = 64 * 1024
_TEMPLATE = "/v1/tasks/{task}/predict"
_PATH = re.compile(_TEMPLATE.replace("{task}", "([^/]+)"))
_LENGTH = re.compile(rb"[0-9]{1,9}")
_CONTENT_TYPE = JSON.encode()

Endpoint = Callable[[str, PredictRequest, Request], Awaitable[Response]]


class Quick:
    """The innermost layer: plain predictions for one task go straight to their endpoint.

    To find a route, open its contexts and solve its dependencies takes the framework as long as all the rest of an
    answer without the model. What is not plain, or not right, goes the framework's way: its errors are worded in one
    place. Both ways ask for the same scope and quotas, in the same order.
    """

    def __init__(self, app: ASGIApp, endpoint: Endpoint, max_body_bytes: int) -> None:
        self._app = app
        self._endpoint = endpoint
        self._max_bytes = min(max_body_bytes, _MAX_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, or passes the request on."""
        task = self._task(scope) if scope["type"] == "http" else None
        if task is None:
            await self._app(scope, receive, send)
        else:
            await within_quotas(partial(self._answer, task), scope, receive, send)

    def _task(self, scope: Scope) -> str | None:
        """Which task is asked; None where the request is not plain."""
        found = _PATH.fullmatch(scope["path"])
        if found is None or scope["method"] != "POST" or "fastapi.telemetry" in scope:
            return None
        caller: Caller = scope["state"]["caller"]
        # Of a header that is there twice the first one counts.
        headers = dict(reversed(scope["headers"]))
        length = headers.get(b"content-length", b"")
        fits = _LENGTH.fullmatch(length) and int(length) <= self._max_bytes
        plain = fits and headers.get(b"content-type") == _CONTENT_TYPE and "predict" in caller.scopes
        return found[1] if plain else None

    async def _answer(self, task: str, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        scope["state"]["route_path"] = _TEMPLATE
        preparation: Preparation = scope["app"].state.preparation
        answer: ASGIApp
        try:
            num_bytes = int(request.headers["content-length"])
            with preparation.body_bytes.hold(scope["state"]["caller"].tenant, num_bytes):
                message = await receive()
                body = _read(message)
                answer = partial(self._pass_on, message) if body is None else await self._endpoint(task, body, request)
        except ANSWERED as error:
            answer = await answer_error(request, error)
        await answer(scope, receive, send)

    async def _pass_on(self, message: Message, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, _again(message, receive), send)


def _read(message: Message) -> PredictRequest | None:
    if message["type"] != "http.request" or message.get("more_body", False):
        return None
    try:
        return PredictRequest.model_validate_json(message.get("body", b""))
    except ValueError:
        return None


def _again(message: Message, receive: Receive) -> Receive:
    messages = iter((message,))

    async def receive_again() -> Message:
        return next(messages, None) or await receive()

    return receive_again
