"""How much may wait, of all tenants together and of each, and the maximum cost of a batch: lower while several tenants
are present, so that none waits long for another."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass

from peltier_client.errors import QueueFull, TooLarge

from peltier_server import retry_hints
from peltier_server.fairness.shared_bound import TIMES_THE_REST, is_fair, max_alone

# Callers who send one request at a time pause between them. So a tenant stays present this long after its last row.
PRESENT_SECONDS = 10.0
# The fixed cost of a batch is about as much. A smaller batch has more overhead than useful work.
MIN_SHARED_COST = 32


@dataclass(frozen=True)
class Admission:
    """At most `max_tokens` wait, and of one tenant at most three times the rest. So a tenant that floods the queue
    leaves room for others. Tokens are counted, not their estimated cost, so that measured times have no influence."""

    max_tokens: int

    def check(self, tenant: str, tokens: int, *, waiting: int, of_tenant: int) -> None:
        """Raises `QueueFull` if `tokens` beside those `waiting` are too many, or `TooLarge` if they always are."""
        max_tokens = max_alone(self.max_tokens)
        if tokens > max_tokens:
            raise TooLarge(
                f"the request costs {tokens} tokens; at most {max_tokens} of one tenant may wait at a time, "
                f"so that others find room among {self.max_tokens}"
            )
        rest = self.max_tokens - waiting - tokens
        if rest < 0:
            raise QueueFull(
                f"{waiting} tokens wait of at most {self.max_tokens}; {tokens} more do not fit",
                retry_after=retry_hints.SOON,
            )
        if not is_fair(of_tenant + tokens, rest):
            raise QueueFull(
                f"{of_tenant} tokens of tenant {tenant!r} wait; {tokens} more would leave {rest} of {self.max_tokens} "
                f"to others, and one tenant may have at most {TIMES_THE_REST} times what it leaves",
                retry_after=retry_hints.SOON,
            )


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
