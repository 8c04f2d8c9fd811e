"""What is known of the request that is being answered, for all who answer, measure and log it."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

from peltier_server.auth.caller import Caller
from peltier_server.fairness.shared_bound import Held

# The transport takes this much of an answer before it asks the server to wait.
PIECE_BYTES = 64 * 1024
# The one key of a request in the state of its ASGI scope.
_KEY = "context"


class VersionLabels(NamedTuple):
    """Whose adapter, its name, and the version's number as text."""

    tenant: str
    adapter: str
    version: str


@dataclass(slots=True, eq=False)
class RequestContext:
    """One request. The outermost middleware makes it; each field that is None then is set once, by the layer that
    learns it."""

    # The caller's `x-request-id`, or the server's own: the same id gets the same version of a split.
    request_id: str
    # Whether it arrived before the server began to drain.
    admitted: bool = True
    # None until the caller is authenticated, and where a route is open to anyone.
    known_caller: Caller | None = None
    # Counts the bytes of the answer until the caller has them.
    answer_bytes: Held | None = None
    # The one adapter version that is asked.
    version: VersionLabels | None = None

    @property
    def caller(self) -> Caller:
        """Who asks; for routes that ask for a key."""
        assert self.known_caller is not None, "the route is open to callers without a key"
        return self.known_caller

    @property
    def tenant(self) -> str:
        """Who is accounted for it, and whose adapters its names mean."""
        return self.caller.tenant

    def reserve(self, num_bytes: int) -> None:
        """Counts an answer that has so many bytes in memory; raises `QueueFull` where there is no room for them now."""
        # Fewer are within what the transport of any connection holds.
        if self.answer_bytes is not None and num_bytes > PIECE_BYTES:
            self.answer_bytes.grow(num_bytes)


# For log records that are made while a request is answered.
current_context = ContextVar[RequestContext | None]("current_context", default=None)


def context_of(scope: Mapping[str, Any]) -> RequestContext:
    """The context of the request with this ASGI scope."""
    context: RequestContext = scope["state"][_KEY]
    return context


def attach_context(scope: Mapping[str, Any], context: RequestContext) -> None:
    """Makes `context` that of the request with this ASGI scope."""
    scope["state"][_KEY] = context
