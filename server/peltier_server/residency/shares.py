"""How much of something scarce each tenant holds, and how much more it may take."""

from collections import Counter

from peltier_server.fairness.shared_bound import is_fair


class Shares:
    """Of `capacity` units a tenant may hold at most three times what is then left to everyone.

    A tenant that holds nothing may always take one thing, whatever its size, as soon as there is room for it. Several
    tenants may hold the same thing: each is charged for all of it, because each alone could keep it, while it takes its
    room once (`taken`).
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.taken = 0
        self._held: Counter[str] = Counter()

    def held(self, tenant: str) -> int:
        """Units that are charged to `tenant`."""
        return self._held[tenant]

    def rest(self, units: int) -> int:
        """What is left to everyone once `units` more are taken."""
        return self.capacity - self.taken - units

    def allows(self, tenant: str, charge: int, room: int) -> bool:
        """Whether `tenant` may hold `charge` units more, of which `room` are not yet taken by anybody."""
        held = self._held[tenant]
        return not held or is_fair(held + charge, self.rest(room))

    def take(self, tenant: str, charge: int, room: int) -> None:
        """`tenant` holds so much more."""
        self._held[tenant] += charge
        self.taken += room

    def give_back(self, tenant: str, charge: int, room: int) -> None:
        """`tenant` holds so much less."""
        self.taken -= room
        self._held[tenant] -= charge
        if not self._held[tenant]:
            del self._held[tenant]
