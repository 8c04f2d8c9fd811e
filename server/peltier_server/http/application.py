"""FastAPI's app with the middleware of this server only, and what its routes share."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from peltier_server.auth.keyring import Keyring
from peltier_server.errors import ErrorShape
from peltier_server.fairness.preparation import Preparation
from peltier_server.http.disconnects import Watches
from peltier_server.http.lifecycle import Lifecycle
from peltier_server.http.uploads import UploadTurns
from peltier_server.metrics.metrics import Metrics
from peltier_server.quotas.enforcer import QuotaEnforcer


@dataclass(frozen=True)
class AppState:
    """What the routes of one app share. An address of one of `error_shapes` answers errors in that shape."""

    lifecycle: Lifecycle
    metrics: Metrics
    keyring: Keyring
    enforcer: QuotaEnforcer
    upload_turns: UploadTurns
    preparation: Preparation
    error_shapes: Sequence[ErrorShape] = ()
    watches: Watches = field(default_factory=Watches)


class Application(FastAPI):
    """Routes behind the middleware that is added to it.

    The framework would add six layers of its own, which take a quarter of the time of a small answer. This server has
    no use for them here: `RequestMiddleware` answers every exception, `FrameworkRoute` has what the framework's
    endpoints need, bodies have bounds of their own, and metrics are at `/metrics`.
    """

    def __init__(self, state: AppState, **options: Any) -> None:
        super().__init__(**options)
        self.state: Any = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request to the middleware, without the framework's telemetry."""
        if scope["type"] != "http" or self.middleware_stack is None:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        await self.middleware_stack(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """The middleware that was added, the last one outermost, around the router."""
        app: ASGIApp = self.router
        for cls, args, kwargs in reversed(self.user_middleware):
            app = cls(app, *args, **kwargs)
        return app
