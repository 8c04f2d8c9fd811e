"""Routes whose bodies are forms with files."""

from fastapi import Request, Response

from peltier_server.context import BodyLimit
from peltier_server.http.application import get_context, get_upload_turns
from peltier_server.http.bodies import Handler
from peltier_server.http.scoped_route import ScopedRoute


class UploadRoute(ScopedRoute):
    """Receives as many uploads at once as the `UploadTurns` of the app allow, each of at most `max_bytes`."""

    def max_bytes(self, request: Request) -> int:
        """The most bytes of a body: here those of an artifact with its report."""
        return get_upload_turns(request).max_bytes

    def get_route_handler(self) -> Handler:
        """The framework's handler, which first waits for its turn to receive an upload."""
        handle = super().get_route_handler()

        async def in_turn(request: Request) -> Response:
            context = get_context(request)
            async with get_upload_turns(request).receive(context.tenant):
                context.body_limit = BodyLimit(self.max_bytes(request))
                return await handle(request)

        return in_turn
