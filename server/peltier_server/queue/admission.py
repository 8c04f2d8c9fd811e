"""Bounds of the queue: for all tenants together, and for each."""

from dataclasses import dataclass

from peltier_client.errors import QueueFull, TooLarge

from peltier_server import retry_hints
from peltier_server.fairness.shared_bound import TIMES_THE_REST, is_fair, max_alone


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
