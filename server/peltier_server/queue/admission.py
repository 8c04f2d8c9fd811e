"""How much may wait: of all tenants together, and of one beside the others."""

from dataclasses import dataclass

from peltier_client.errors import QueueFull, TooLarge

from peltier_server import retry_hints
from peltier_server.fairness.shared_bound import TIMES_THE_REST, is_fair, max_alone


@dataclass(frozen=True)
class Admission:
    """At most `max_tokens` wait, and of one tenant at most three times what is then left: whoever floods the queue
    always leaves room in it. Tokens are counted, and not what they cost, so that the same request is always let in or
    refused, whatever has been measured meanwhile."""

    max_tokens: int

    def check(self, tenant: str, tokens: int, *, waiting: int, of_tenant: int) -> None:
        """Raises `QueueFull`, or `TooLarge` where coming back later would not help, if so many tokens more may not wait
        beside those that are `waiting` already."""
        most = max_alone(self.max_tokens)
        if tokens > most:
            raise TooLarge(
                f"the request costs {tokens} tokens; at most {most} of one tenant may wait at a time, "
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
