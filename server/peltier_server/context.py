"""The context of a request, for the code that answers, measures and logs the request."""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from peltier_server.auth.keyring import Caller
from peltier_server.fairness.shared_bound import Held
from peltier_server.tracing import RequestTrace

# The transport buffers this many bytes of an answer before it makes the server wait.
PIECE_BYTES = 64 * 1024
# The key of the context in the `state` of an ASGI scope.
_KEY = "context"


class AdapterKey(NamedTuple):
    """A tenant and the digest of an artifact. Two tenants with the same artifact have two copies in memory, so that
    neither can learn from a tier or a load time that the other has it."""

    tenant: str
    digest: str


class VersionLabels(NamedTuple):
    """The labels of a version in metrics: the adapter's tenant, the adapter's name, the version's number as text."""

    tenant: str
    adapter: str
    version: str


class BodyLimit(NamedTuple):
    """The maximum of bytes of a body. Its bytes are counted in `held`."""

    max_bytes: int
    held: Held | None = None


@dataclass(slots=True, eq=False)
class RequestContext:
    """The context of one request. The middleware creates it. The layer that first knows the value of a field sets
    it."""

    # The caller's `x-request-id`, or an id from the server. A traffic split gives the same id the same version.
    request_id: str
    # The headers of the request by their names in lower case. Of a header that is there twice, the first counts.
    headers: Mapping[str, str] = field(default_factory=dict)
    # Whether the request arrived before the server began to drain.
    admitted: bool = True
    # None until the caller is authenticated, and for routes that need no key.
    known_caller: Caller | None = None
    # Whether nobody waits for the answer: all other requests go first.
    is_background: bool = False
    # While the route reads the body.
    body_limit: BodyLimit | None = None
    # The headers of quotas for an answer with this status.
    quota_headers: Callable[[int], Awaitable[Mapping[str, str]]] | None = None
    # Ends the slot that the request has among its tenant's concurrent requests, once it is answered.
    leave_slot: Callable[[], None] | None = None
    # Counts the bytes of the answer until the caller has received them. None for callers that need no key, whose
    # answers are small.
    answer_bytes: Held | None = None
    # The adapter version, if the request uses exactly one.
    version: VersionLabels | None = None
    # Its spans, if the server traces.
    trace: RequestTrace | None = None

    @property
    def caller(self) -> Caller:
        """The authenticated caller. Only for routes that need a key."""
        assert self.known_caller is not None, "the route is open to callers without a key"
        return self.known_caller

    @property
    def tenant(self) -> str:
        """The tenant that the request is charged to, and whose adapters its names refer to."""
        assert self.known_caller is not None, "the route is open to callers without a key"
        return self.known_caller.tenant

    def reserve(self, num_bytes: int) -> None:
        """Counts an answer of `num_bytes` in memory. Raises `QueueFull` if the bound does not allow it now."""
        # The buffer of the connection's transport covers smaller answers.
        if self.answer_bytes is not None and num_bytes > PIECE_BYTES:
            self.answer_bytes.grow(num_bytes)


# The context for log records during a request.
current_context = ContextVar[RequestContext | None]("current_context", default=None)


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """The headers of the request with this ASGI scope, by their names in lower case; of equal ones the first."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}


def context_of(scope: Mapping[str, Any]) -> RequestContext:
    """The context of the request with this ASGI scope."""
    context: RequestContext = scope["state"][_KEY]
    return context


def attach_context(scope: Mapping[str, Any], context: RequestContext) -> None:
    """Stores `context` as the context of the request with this ASGI scope."""
    scope["state"][_KEY] = context
