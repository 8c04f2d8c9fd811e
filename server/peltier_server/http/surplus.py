"""What is said on connections beyond those that a server holds."""

from peltier_client.errors import QueueFull
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peltier_server import retry_hints
from peltier_server.auth.middleware import OPEN_PATHS
from peltier_server.errors import error_response


class SurplusMiddleware:
    """Answers 503 on a connection that `Connection` calls surplus, and has it closed. Probes are answered: a server
    with very many callers is alive."""

    def __init__(self, app: ASGIApp, max_connections: int) -> None:
        self._app = app
        self._max_connections = max_connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on whatever comes on other connections."""
        if scope["type"] != "http" or "surplus" not in scope["state"]:
            await self._app(scope, receive, send)
            return

        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        app = self._app if scope["path"] in OPEN_PATHS else self._refusal(scope)
        await app(scope, receive, send_last)

    def _refusal(self, scope: Scope) -> ASGIApp:
        sentence = f"{self._max_connections} connections are open, and this server holds no more"
        return error_response(QueueFull(sentence, retry_after=retry_hints.SOON), scope)
