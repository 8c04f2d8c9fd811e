"""Lines of waiting items, one for each tenant, served by weight."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Generic, TypeVar

from peltier_server.fairness.scheduler import WeightOf

# Virtual time is counted in integer steps, as in `peltier_server.fairness.scheduler`.
_STEPS = 10**9

T = TypeVar("T", bound=Hashable)


class Verdict(Enum):
    """The result of an item's turn."""

    GRANTED = "granted"
    # Its tenant is at the bound of its share; the other tenants have their turn.
    OVER_SHARE = "over share"
    # There is no room; the item gets the next room before any other.
    NO_ROOM = "no room"


class WaitingLine(Generic[T]):
    """A first-in, first-out line for each tenant. The next tenant is the one that was granted least relative to its
    weight. A tenant that begins to wait is level with the least served waiting tenant. Belongs to the event loop."""

    def __init__(self, weight_of: WeightOf) -> None:
        self._weight_of = weight_of
        # The items by tenant, for tenants that wait. A plain attribute, because every lease looks at it.
        self.waiting: dict[str, OrderedDict[T, None]] = {}
        self._tags: dict[str, int] = {}
        # Whether an item waits for room.
        self.blocked = False

    def put(self, tenant: str, item: T) -> None:
        """Adds `item` at the end of its tenant's line, unless it is in the line."""
        if tenant not in self.waiting:
            now = min((self._tags[other] for other in self.waiting), default=0)
            self.waiting[tenant] = OrderedDict()
            self._tags[tenant] = max(now, self._tags.get(tenant, 0))
        self.waiting[tenant].setdefault(item)

    def discard(self, tenant: str, item: T) -> None:
        """Removes `item`, if it is in the line."""
        items = self.waiting.get(tenant)
        if items is None:
            return
        items.pop(item, None)
        if not items:
            self._end(tenant)

    def serve(self, attempt: Callable[[str, T], tuple[Verdict, int]]) -> None:
        """Calls `attempt` with each tenant's first item in turn, until no item can be granted. `attempt` returns the
        verdict and the cost of a grant."""
        while self._serve_one(attempt):
            pass

    def _serve_one(self, attempt: Callable[[str, T], tuple[Verdict, int]]) -> bool:
        self.blocked = False
        for tenant in sorted(self.waiting, key=self._tags.__getitem__):
            item = next(iter(self.waiting[tenant]))
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
        del self.waiting[tenant]
        if not self.waiting:
            self._tags.clear()
            self.blocked = False
            return
        now = min(self._tags[other] for other in self.waiting)
        # A tenant that left ahead of the others is ahead of them when it returns. Other tags are not needed.
        if len(self._tags) > 2 * len(self.waiting):
            self._tags = {other: tag for other, tag in self._tags.items() if other in self.waiting or tag > now}
