"""Who may call: with an admin key, only its bearers; every route but the two probes is closed by default."""

import secrets

from peltier_client.errors import Unauthorized
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from peltier_server.caller import LOCAL, OPERATOR, Caller
from peltier_server.errors import error_response

OPEN_PATHS = frozenset({"/health", "/ready"})


class Guard:
    """Says who calls, and answers 401 to requests without the key.

    It stands before the router, not in a dependency: the framework reads and parses a body before it runs dependencies,
    and a stranger shall not make the server take in an upload or learn which addresses exist.
    """

    def __init__(self, app: ASGIApp, admin_key: str | None) -> None:
        self._app = app
        self._admin_key = admin_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or answers in its place."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        caller = self._caller(Headers(scope=scope))
        if caller is not None:
            scope.setdefault("state", {})["caller"] = caller
            await self._app(scope, receive, send)
            return
        error = Unauthorized("this server wants its API key in the header 'authorization: Bearer <key>'")
        await error_response(error, scope["path"])(scope, receive, send)

    def _caller(self, headers: Headers) -> Caller | None:
        if self._admin_key is None:
            return LOCAL
        scheme, _, key = headers.get("authorization", "").partition(" ")
        # As bytes, because compare_digest refuses text that is not ASCII.
        same = secrets.compare_digest(key.strip().encode(), self._admin_key.encode())
        return OPERATOR if scheme.lower() == "bearer" and same else None
