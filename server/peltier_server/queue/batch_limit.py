"""The maximum cost of a batch: lower while several tenants send requests, so that none waits long for another."""

import math
import time
from dataclasses import dataclass

# Tenants share the server until this long after the last request of another tenant.
SHARED_SECONDS = 10.0
# A smaller batch has more overhead than useful work.
MIN_SHARED_COST = 256


@dataclass(frozen=True)
class BatchBounds:
    """Maximum rows of a batch, its maximum cost in tokens of the plain backbone, and its maximum expected seconds while
    several tenants send requests."""

    max_rows: int
    max_tokens: int
    max_shared_seconds: float = math.inf


class BatchLimit:
    """Computes the maximum cost of a batch. The caller holds the lock of the queue."""

    def __init__(self, bounds: BatchBounds) -> None:
        self._bounds = bounds
        self._latest = ""
        self._asked_at = self._other_asked_at = -math.inf

    def asked(self, tenant: str) -> None:
        """A request of `tenant` has arrived."""
        if tenant != self._latest:
            self._other_asked_at = self._asked_at
            self._latest = tenant
        self._asked_at = time.monotonic()

    def cost(self, seconds_per_token: float) -> int:
        """The maximum cost in tokens, for the expected time of a token; 0 is an unknown time."""
        if not seconds_per_token or time.monotonic() - self._other_asked_at > SHARED_SECONDS:
            return self._bounds.max_tokens
        fitting = self._bounds.max_shared_seconds / seconds_per_token
        return int(min(self._bounds.max_tokens, max(fitting, MIN_SHARED_COST)))
