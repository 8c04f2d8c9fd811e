"""How much of something may be in progress: of all tenants together, and of one beside the others.

Of what all tenants share, one may have three times what is then left to everyone. Alone that is three quarters. Beside
n tenants that take all they can, one part of 3 n + 1 stays free for a newcomer.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from peltier_client.errors import QueueFull, TooLarge

from peltier_server import retry_hints

TIMES_THE_REST = 3


def max_alone(limit: int) -> int:
    """The most that a tenant may have of `limit` while nobody else has anything."""
    return TIMES_THE_REST * limit // (TIMES_THE_REST + 1)


def is_fair(held: int, rest: int) -> bool:
    """Whether one tenant may hold so much, where `rest` is what is then left to everyone."""
    return held <= TIMES_THE_REST * rest


class SharedBound:
    """At most `limit` at a time, and of one tenant at most three times what is then left: whoever takes all it can
    always leaves room for others."""

    def __init__(self, limit: int, what: str) -> None:
        """`what` is counted, in the plural: bytes of request bodies."""
        self._limit = limit
        self._what = what
        self._of_tenant = Counter[str]()
        self.total = 0

    @property
    def max_of_one(self) -> int:
        """How much a tenant may have while nobody else has anything."""
        return max_alone(self._limit)

    @contextmanager
    def hold(self, tenant: str, amount: int) -> Iterator["Held"]:
        """Counts `amount` as long as the block lasts. Raises `QueueFull`, or `TooLarge` where coming back later would
        not help."""
        held = Held(self, tenant)
        held.grow(amount)
        try:
            yield held
        finally:
            held.end()

    def add(self, tenant: str, amount: int) -> None:
        """Counts `amount` more of a tenant, or less; raises and counts nothing if there is no room for more."""
        if amount > 0:
            self._check(tenant, amount)
        self.total += amount
        # Nobody stays in the table with nothing, since there may be many tenants in the course of time.
        if held := self._of_tenant[tenant] + amount:
            self._of_tenant[tenant] = held
        else:
            del self._of_tenant[tenant]

    def check_size(self, amount: int) -> None:
        """Raises `TooLarge` if no tenant may ever have so much in one request."""
        if amount > self.max_of_one:
            raise TooLarge(
                f"the request has {amount} {self._what}; at most {self.max_of_one} of one tenant may be in progress, "
                f"so that others find room among {self._limit}"
            )

    def _check(self, tenant: str, amount: int) -> None:
        rest = self._limit - self.total - amount
        if rest < 0:
            raise QueueFull(
                f"{self.total} {self._what} are in progress of at most {self._limit}; {amount} more do not fit",
                retry_after=retry_hints.SOON,
            )
        if not is_fair(self._of_tenant[tenant] + amount, rest):
            raise QueueFull(
                f"{self._of_tenant[tenant]} {self._what} of tenant {tenant!r} are in progress; {amount} more would "
                f"leave {rest} of {self._limit} to others, and one tenant may have at most {TIMES_THE_REST} times "
                "what it leaves",
                retry_after=retry_hints.SOON,
            )


class Held:
    """What one request has in progress."""

    def __init__(self, bound: SharedBound, tenant: str) -> None:
        self._bound = bound
        self._tenant = tenant
        self._amount = 0

    def grow(self, amount: int) -> None:
        """The request has so much in all now, or has had more."""
        if amount > self._amount:
            self._bound.check_size(amount)
            self._bound.add(self._tenant, amount - self._amount)
            self._amount = amount

    def shrink(self, amount: int) -> None:
        """The request has no more than this any more."""
        if amount < self._amount:
            self._bound.add(self._tenant, amount - self._amount)
            self._amount = amount

    def end(self) -> None:
        """It has nothing any more."""
        self.shrink(0)
