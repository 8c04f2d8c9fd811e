"""Authenticates each request before the router sees it. The front page, the console's files and the probes need no
caller."""

from peltier_client.errors import PeltierError
from starlette.types import ASGIApp, Receive, Scope, Send

from peltier_server.auth.authenticator import Authenticator
from peltier_server.context import context_of
from peltier_server.errors import error_response

OPEN_PATHS = frozenset({"/", "/health", "/ready"})
CONSOLE = "/console"


class AuthMiddleware:
    """Puts the caller into the request's context, or answers the request with an error.

    This is not a dependency, because the framework reads and parses a body before it runs dependencies. An
    unauthenticated caller must not make the server receive an upload, or learn which addresses exist.
    """

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or answers it with the error of the authenticator."""
        if scope["type"] == "http" and not is_open(scope["path"]):
            try:
                context = context_of(scope)
                context.known_caller = await self._authenticator.caller(context.headers)
            except PeltierError as error:
                await error_response(error, scope)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def is_open(path: str) -> bool:
    """Whether this path, or template of paths, needs no caller. What it answers is the same for everybody."""
    return path in OPEN_PATHS or path == CONSOLE or path.startswith(f"{CONSOLE}/")
