"""How JSON is read before anything is made of it."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from peltier_adapters.json_tokens import has_more_tokens
from peltier_client.errors import TooLarge

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


class _Counted(Request):
    async def json(self) -> Any:
        limit = max(_MIN_TOKENS, _TOKENS_PER_INPUT * self.app.state.max_inputs)
        if has_more_tokens(await self.body(), limit):
            sentence = f"the request body holds more than {limit} strings, commas and brackets"
            raise RefusedBody(TooLarge(sentence))
        return await super().json()
