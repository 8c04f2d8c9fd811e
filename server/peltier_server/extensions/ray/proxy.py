"""What Ray's proxy answers while it knows no application."""

from peltier_client.errors import NotReady
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peltier_server import retry_hints

# Names the function that Ray's proxy calls for its middleware.
CALLBACK = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
MIDDLEWARE = "peltier_server.extensions.ray.proxy.middleware"
# As ray.serve._private.proxy writes it.
_NO_ROUTE = b"not found. Ping http://.../-/routes for available routes."


def middleware() -> list[Middleware]:
    """The middleware of a proxy whose applications include one at `/`, as Peltier is."""
    return [Middleware(NotReadyWithoutRoutes)]


class NotReadyWithoutRoutes:
    """Answers 503 where the proxy itself answers 404. As Peltier serves all paths, that means that the proxy has just
    started and has not heard of it yet, or that Peltier stops. Answers of applications pass."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on."""
        held = list[Message]()

        async def pass_on(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 404:
                held.append(message)
                return
            if held and message.get("body", b"").endswith(_NO_ROUTE):
                held.clear()
                await _refuse(send)
                return
            while held:
                await send(held.pop())
            await send(message)

        await self._app(scope, receive, pass_on)


async def _refuse(send: Send) -> None:
    error = NotReady("Ray's proxy knows no replica of this server yet")
    headers = [(b"content-type", b"application/json"), (b"retry-after", b"%d" % retry_hints.SOON)]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": error.body().model_dump_json().encode()})
