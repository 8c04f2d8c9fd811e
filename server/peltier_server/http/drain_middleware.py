"""The outermost layer of every request: whether it came in time."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peltier_server.http.lifecycle import Lifecycle


class DrainMiddleware:
    """Tells requests that came before the server began to drain, and are answered whatever is still to come of their
    body, from newcomers. While the server is leaving, every answer ends its connection, so that the caller's next
    request looks for another replica instead of meeting a socket that closes."""

    def __init__(self, app: ASGIApp, lifecycle: Lifecycle) -> None:
        self._app = app
        self._lifecycle = lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, with `admitted` in its state."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_politely(message: Message) -> None:
            if self._lifecycle.leaving and message["type"] == "http.response.start":
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        with self._lifecycle.arrive() as admitted:
            scope.setdefault("state", {})["admitted"] = admitted
            await self._app(scope, receive, send_politely)
