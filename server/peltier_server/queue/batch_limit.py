"""The maximum cost of a batch: lower while several tenants are present, so that none waits long for another."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass

# Callers who send one request at a time pause between them. So a tenant stays present this long after its last row.
PRESENT_SECONDS = 10.0
# The fixed cost of a batch is about as much. A smaller batch has more overhead than useful work.
MIN_SHARED_COST = 32


@dataclass(frozen=True)
class BatchBounds:
    """Maximum rows of a batch, its maximum cost in tokens of the plain backbone, and its maximum expected seconds while
    several tenants are present."""

    max_rows: int
    max_tokens: int
    max_shared_seconds: float = math.inf


class BatchLimit:
    """Computes the maximum cost of a batch. A tenant is present while it has waiting or running rows, and some seconds
    longer. The caller holds the lock of the queue."""

    def __init__(self, bounds: BatchBounds) -> None:
        self._bounds = bounds
        self._latest = ""
        self._seen_at = self._other_seen_at = -math.inf

    def saw(self, tenants: Iterable[str]) -> None:
        """These tenants have waiting or running rows now."""
        for tenant in tenants:
            if tenant != self._latest:
                self._other_seen_at, self._latest = self._seen_at, tenant
            self._seen_at = time.monotonic()

    def cost(self, seconds_per_token: float, fixed_cost: float = 0.0) -> int:
        """The maximum cost of a batch's rows in tokens, for the expected time of a token, which is infinite if nothing
        is known, and the cost of a batch without rows."""
        max_tokens, max_seconds = self._bounds.max_tokens, self._bounds.max_shared_seconds
        is_shared = time.monotonic() - self._other_seen_at <= PRESENT_SECONDS
        if not is_shared or (max_tokens + fixed_cost) * seconds_per_token <= max_seconds:
            return max_tokens
        fitting = max_seconds / seconds_per_token - fixed_cost
        return min(max_tokens, max(int(fitting), MIN_SHARED_COST))
