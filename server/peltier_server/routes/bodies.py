"""How bodies are read before anything is made of them."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from peltier_adapters.json_tokens import has_more_tokens
from peltier_client.errors import TooLarge

from peltier_server.errors import RefusedBody
from peltier_server.intake import Intake
from peltier_server.routes.closed import Closed

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

# Far more than the most inputs of three texts, each with every parameter, need.
_TOKENS_PER_INPUT = 64
_MIN_TOKENS = 65_536


class JsonRoute(Closed):
    """Refuses JSON of very many values: to complain of two megabytes of empty lists takes a gigabyte and seconds."""

    def get_route_handler(self) -> Handler:
        """The framework's handler over a request that counts first."""
        handle = super().get_route_handler()

        async def counted(request: Request) -> Response:
            return await handle(_Counted(request.scope, request.receive, request._send))

        return counted


class _Counted(Request):
    async def json(self) -> Any:
        limit = max(_MIN_TOKENS, _TOKENS_PER_INPUT * self.app.state.max_inputs)
        if has_more_tokens(await self.body(), limit):
            sentence = f"the request body holds more than {limit} strings, commas and brackets"
            raise RefusedBody(TooLarge(sentence))
        return await super().json()


class UploadRoute(Closed):
    """Receives as many uploads at once as the `Intake` of the app allows."""

    def get_route_handler(self) -> Handler:
        """The framework's handler, in turn."""
        handle = super().get_route_handler()

        async def in_turn(request: Request) -> Response:
            intake: Intake = request.app.state.intake
            async with intake.receive():
                return await handle(request)

        return in_turn
