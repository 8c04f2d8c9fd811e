"""Who waits for a share of something scarce, and whose turn it is."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Generic, TypeVar

from peltier_server.fairness.scheduler import WeightOf

# Virtual time is counted in whole steps, as the queue counts it (`peltier_server.fairness.scheduler`).
_STEPS = 10**9

T = TypeVar("T", bound=Hashable)


class Verdict(Enum):
    """What comes of an item's turn."""

    GRANTED = "granted"
    # Its tenant holds its share; others are not kept waiting for that.
    OVER_SHARE = "over share"
    # It may have the next room, and nobody else takes it before.
    NO_ROOM = "no room"


class Line(Generic[T]):
    """A line for each tenant, first come, first served; between tenants the one that has been granted least by its
    weight is next. A tenant that begins to wait is level with the least served of those who wait. Belongs to the event
    loop."""

    def __init__(self, weight_of: WeightOf) -> None:
        self._weight_of = weight_of
        self._items: dict[str, OrderedDict[T, None]] = {}
        self._tags: dict[str, int] = {}
        # Some item waits for room that is to come.
        self.blocked = False

    def __bool__(self) -> bool:
        return bool(self._items)

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._items

    def put(self, tenant: str, item: T) -> None:
        """Lets `item` wait behind the others of `tenant`; one that waits already keeps its place."""
        if tenant not in self._items:
            now = min((self._tags[other] for other in self._items), default=0)
            self._items[tenant] = OrderedDict()
            self._tags[tenant] = max(now, self._tags.get(tenant, 0))
        self._items[tenant].setdefault(item)

    def discard(self, tenant: str, item: T) -> None:
        """`item` waits no longer."""
        items = self._items.get(tenant)
        if items is None:
            return
        items.pop(item, None)
        if not items:
            self._end(tenant)

    def serve(self, attempt: Callable[[str, T], tuple[Verdict, int]]) -> None:
        """Asks `attempt` for each tenant's first item in turn, until nobody can be granted anything. It returns what
        came of it and what a grant cost."""
        while self._serve_one(attempt):
            pass

    def _serve_one(self, attempt: Callable[[str, T], tuple[Verdict, int]]) -> bool:
        self.blocked = False
        for tenant in sorted(self._items, key=self._tags.__getitem__):
            item = next(iter(self._items[tenant]))
            verdict, cost = attempt(tenant, item)
            if verdict is Verdict.GRANTED:
                self._tags[tenant] += cost * round(_STEPS / self._weight_of(tenant))
                self.discard(tenant, item)
                return True
            if verdict is Verdict.NO_ROOM:
                self.blocked = True
                return False
        return False

    def _end(self, tenant: str) -> None:
        del self._items[tenant]
        if not self._items:
            self._tags.clear()
            self.blocked = False
            return
        now = min(self._tags[other] for other in self._items)
        # Who left ahead of the others is ahead of them when it comes back; of the rest there is nothing to remember.
        if len(self._tags) > 2 * len(self._items):
            self._tags = {one: tag for one, tag in self._tags.items() if one in self._items or tag > now}
