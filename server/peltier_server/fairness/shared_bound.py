"""A bound on the amount in progress, for all tenants together and for each tenant.

A tenant may hold at most three times the amount that is then free. A tenant that is alone may hold three quarters of
the limit. If n tenants are at their bound, 1 / (3 n + 1) of the limit stays free for new tenants.
"""

from types import TracebackType
from typing import NamedTuple, Self

from peltier_client.errors import QueueFull, TooLarge

from peltier_server import retry_hints

TIMES_THE_REST = 3


def max_alone(limit: int) -> int:
    """The maximum of `limit` for a tenant while the others hold nothing."""
    return TIMES_THE_REST * limit // (TIMES_THE_REST + 1)


def is_fair(held: int, rest: int) -> bool:
    """Whether a tenant may hold `held` units if `rest` units are then free."""
    return held <= TIMES_THE_REST * rest


class ShareRule(NamedTuple):
    """At most `limit` units, and of one tenant at most three times the free rest. In messages, `what` names the units,
    in the plural, and `state` says what they do, such as wait."""

    limit: int
    what: str
    state: str

    def check(self, tenant: str, amount: int, *, held: int, taken: int) -> None:
        """Raises `QueueFull` if `tenant`, which holds `held` of the `taken` units, may not have `amount` more."""
        limit, what, state = self
        rest = limit - taken - amount
        if rest < 0:
            raise QueueFull(
                f"{taken} {what} {state} of at most {limit}; {amount} more do not fit", retry_after=retry_hints.SOON
            )
        if not is_fair(held + amount, rest):
            raise QueueFull(
                f"{held} {what} of tenant {tenant!r} {state}; {amount} more would leave {rest} of {limit} to others, "
                f"and one tenant may have at most {TIMES_THE_REST} times what it leaves",
                retry_after=retry_hints.SOON,
            )


class Shares:
    """A tenant may hold at most three times the units that are then free, of `capacity` units.

    A tenant that holds nothing may always take one object of any size, as soon as there is room for it. Several tenants
    may hold the same object: each is charged for all of it, because each alone could keep it, but it takes its room
    only once (`taken`).
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.taken = 0
        self._held: dict[str, int] = {}

    def held(self, tenant: str) -> int:
        """Units charged to `tenant`."""
        return self._held.get(tenant, 0)

    def rest(self, units: int) -> int:
        """Free units after taking `units` more."""
        return self.capacity - self.taken - units

    def allows(self, tenant: str, charge: int, room: int) -> bool:
        """Whether `tenant` may hold `charge` more units, of which `room` are not taken yet."""
        held = self._held.get(tenant, 0)
        return not held or is_fair(held + charge, self.rest(room))

    def take(self, tenant: str, charge: int, room: int) -> None:
        """Charges `tenant` for more units; fewer if they are negative."""
        self.taken += room
        # Tenants with nothing are removed, because over time there may be many tenants.
        if held := self._held.get(tenant, 0) + charge:
            self._held[tenant] = held
        else:
            self._held.pop(tenant, None)

    def give_back(self, tenant: str, charge: int, room: int) -> None:
        """Charges `tenant` for fewer units."""
        self.take(tenant, -charge, -room)


class SharedBound:
    """At most `limit` is in progress, and a tenant holds at most three times the free rest, so that every tenant leaves
    capacity for others."""

    def __init__(self, limit: int, what: str) -> None:
        """`what` names the unit in messages, in the plural, such as bytes of request bodies."""
        self._shares = Shares(limit)
        self._rule = ShareRule(limit, what, "are in progress")
        # The maximum of a tenant while the others have nothing.
        self.max_of_one = max_alone(limit)

    @property
    def total(self) -> int:
        """The amount in progress, of all tenants."""
        return self._shares.taken

    def hold(self, tenant: str, amount: int) -> "Held":
        """Counts `amount` until the block that enters it ends. Raises `QueueFull`, or `TooLarge` if a retry cannot
        succeed."""
        held = Held(self, tenant)
        held.grow(amount)
        return held

    def add(self, tenant: str, amount: int) -> None:
        """Adds `amount`, which may be negative. If a bound is exceeded, raises `QueueFull` and adds nothing."""
        if amount > 0:
            self._rule.check(tenant, amount, held=self._shares.held(tenant), taken=self.total)
        self._shares.take(tenant, amount, amount)

    def check_size(self, amount: int) -> None:
        """Raises `TooLarge` if no request may ever have this amount."""
        if amount > self.max_of_one:
            limit, what, _ = self._rule
            raise TooLarge(
                f"the request has {amount} {what}; at most {self.max_of_one} of one tenant may be in progress, "
                f"so that others find room among {limit}"
            )


class Held:
    """The amount that one request has in progress. At the end of a block that enters it the amount is 0."""

    __slots__ = ("_amount", "_bound", "_tenant")

    def __init__(self, bound: SharedBound, tenant: str) -> None:
        self._bound = bound
        self._tenant = tenant
        self._amount = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    @property
    def max_amount(self) -> int:
        """The largest amount that a request may have."""
        return self._bound.max_of_one

    def grow(self, amount: int) -> None:
        """Raises the amount of the request to `amount`, unless it is larger."""
        if amount > self._amount:
            self._bound.check_size(amount)
            self._bound.add(self._tenant, amount - self._amount)
            self._amount = amount

    def shrink(self, amount: int) -> None:
        """Lowers the amount of the request to `amount`, unless it is smaller."""
        if amount < self._amount:
            self._bound.add(self._tenant, amount - self._amount)
            self._amount = amount

    def end(self) -> None:
        """Lowers the amount to 0."""
        self.shrink(0)
