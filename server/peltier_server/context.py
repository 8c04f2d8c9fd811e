"""Whose request it is."""

from dataclasses import dataclass

from peltier_server.auth.caller import Caller
from peltier_server.fairness.shared_bound import Held

# The transport takes this much of an answer before it asks the server to wait.
PIECE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who asks, and the `x-request-id` under which: the same id gets the same version of a split. `answer_bytes` counts
    those of the answer until the caller has them; None where there is no caller outside."""

    caller: Caller
    request_id: str
    answer_bytes: Held | None = None

    def reserve(self, num_bytes: int) -> None:
        """Counts an answer that has so many bytes in memory; raises `QueueFull` where there is no room for them now."""
        # Fewer are within what the transport of any connection holds.
        if self.answer_bytes is not None and num_bytes > PIECE_BYTES:
            self.answer_bytes.grow(num_bytes)

    @property
    def tenant(self) -> str:
        """Who is accounted for it, and whose adapters its names mean."""
        return self.caller.tenant
