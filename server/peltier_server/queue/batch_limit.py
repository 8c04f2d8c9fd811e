"""How much one batch may cost: less while several tenants ask, so that nobody waits long for another's batch."""

import math
import time
from dataclasses import dataclass

# Tenants share the server for so long after the last time that one of them asked beside another.
SHARED_SECONDS = 10.0
# Below this a batch spends more time on being a batch than on its rows.
MIN_SHARED_COST = 256


@dataclass(frozen=True)
class BatchBounds:
    """Of one batch: rows, and cost in tokens of the plain backbone; and the seconds that it should take at most while
    several tenants ask."""

    max_rows: int
    max_tokens: int
    max_shared_seconds: float = math.inf


class BatchLimit:
    """Says what a batch may cost. The owner of the queue holds its lock around every call."""

    def __init__(self, bounds: BatchBounds) -> None:
        self._bounds = bounds
        self._latest = ""
        self._asked_at = self._other_asked_at = -math.inf

    def asked(self, tenant: str) -> None:
        """A request of `tenant` has come now."""
        if tenant != self._latest:
            self._other_asked_at = self._asked_at
            self._latest = tenant
        self._asked_at = time.monotonic()

    def cost(self, seconds_per_token: float) -> int:
        """In tokens, of which one is expected to take so many seconds; 0 where nothing has been measured yet."""
        if not seconds_per_token or time.monotonic() - self._other_asked_at > SHARED_SECONDS:
            return self._bounds.max_tokens
        fitting = self._bounds.max_shared_seconds / seconds_per_token
        return int(min(self._bounds.max_tokens, max(fitting, MIN_SHARED_COST)))
