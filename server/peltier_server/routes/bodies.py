"""How JSON is read before anything is made of it."""

import json
import reprlib
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from peltier_adapters.json_tokens import doubled_name, has_more_tokens
from peltier_client.errors import InvalidInput, TooLarge

from peltier_server.errors import RefusedBody

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

# Far more than the most inputs of three texts, each with every parameter, need.
_TOKENS_PER_INPUT = 64
_MIN_TOKENS = 65_536


def counted(handle: Handler) -> Handler:
    """A route's handler that refuses JSON of very many values: to complain of two megabytes of empty lists takes a
    gigabyte and seconds."""

    async def count(request: Request) -> Response:
        return await handle(_Counted(request.scope, request.receive, request._send))

    return count


def read_once(handle: Handler) -> Handler:
    """The same, which also refuses JSON that gives a name twice: of two shares of a version, or two weights of a
    tenant, nobody could say which was meant."""

    async def read(request: Request) -> Response:
        return await handle(_Unambiguous(request.scope, request.receive, request._send))

    return read


class _Counted(Request):
    async def json(self) -> Any:
        limit = max(_MIN_TOKENS, _TOKENS_PER_INPUT * self.app.state.max_inputs)
        if has_more_tokens(await self.body(), limit):
            sentence = f"the request body holds more than {limit} strings, commas and brackets"
            raise RefusedBody(TooLarge(sentence))
        return await super().json()


class _Unambiguous(_Counted):
    async def json(self) -> Any:
        await super().json()
        return json.loads(await self.body(), object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    name = doubled_name(pairs)
    if name is not None:
        raise RefusedBody(InvalidInput(f"the request body gives {reprlib.repr(name)} twice"))
    return dict(pairs)
