"""The share of each tenant in a bounded resource."""

from collections import Counter

from peltier_server.fairness.shared_bound import is_fair


class Shares:
    """A tenant may hold at most three times the units that are then free, of `capacity` units.

    A tenant that holds nothing may always take one object of any size, as soon as there is room for it. Several tenants
    may hold the same object: each is charged for all of it, because each alone could keep it, but it takes its room
    only once (`taken`).
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.taken = 0
        self._held: Counter[str] = Counter()

    def held(self, tenant: str) -> int:
        """Units charged to `tenant`."""
        return self._held[tenant]

    def rest(self, units: int) -> int:
        """Free units after taking `units` more."""
        return self.capacity - self.taken - units

    def allows(self, tenant: str, charge: int, room: int) -> bool:
        """Whether `tenant` may hold `charge` more units, of which `room` are not taken yet."""
        held = self._held[tenant]
        return not held or is_fair(held + charge, self.rest(room))

    def take(self, tenant: str, charge: int, room: int) -> None:
        """Charges `tenant` for more units."""
        self._held[tenant] += charge
        self.taken += room

    def give_back(self, tenant: str, charge: int, room: int) -> None:
        """Charges `tenant` for fewer units."""
        self.taken -= room
        self._held[tenant] -= charge
        if not self._held[tenant]:
            del self._held[tenant]
