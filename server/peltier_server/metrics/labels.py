"""Values of labels, bounded in number: which keys, tenants and routes have series of their own in metrics."""

from collections.abc import Hashable
from heapq import nlargest, nsmallest
from typing import Generic, NamedTuple, TypeVar

from starlette.types import Scope

K = TypeVar("K", bound=Hashable)

# A key takes another's slot only if it was used so many times as much: two that are used alike do not take turns.
_CLEARLY_MORE = 2.0
# So many slots at most change hands at a time, because each change makes new time series in Prometheus.
_SHARE_PER_TURN = 0.1
# Uses of long ago are worth less; below this a key is forgotten.
_FORGOTTEN = 0.01
_MAX_TENANTS = 100
# Neither can be a tenant's name, which begins with a letter or digit.
_OTHERS = "_others"
_NOBODY = "_nobody"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# No path of a route is without a slash.
_NO_ROUTE = "none"
_NO_METHOD = "other"


class LabelSlots(Generic[K]):
    """At most `max_slots` keys have a slot. A key takes a free one when it is first used; when all are taken, the slots
    stay as they are until `turn_over` gives those of the least used keys to keys that were clearly used more.

    Any thread may `use` it, as long as nobody turns it over.
    """

    def __init__(self, max_slots: int) -> None:
        self._max_slots = max_slots
        self._held: set[K] = set()
        self._uses: dict[K, float] = {}

    @property
    def held(self) -> frozenset[K]:
        """The keys that have a slot."""
        return frozenset(self._held)

    @property
    def are_taken(self) -> bool:
        """There is no slot left for a new key."""
        return len(self._held) >= self._max_slots

    def use(self, key: K) -> bool:
        """Counts a use of `key`; whether it has a slot."""
        self._uses[key] = self._uses.get(key, 0.0) + 1.0
        if key in self._held:
            return True
        if self.are_taken:
            return False
        self._held.add(key)
        return True

    def turn_over(self, worth: float) -> frozenset[K]:
        """The keys that have lost their slots to others. From now on uses until now count `worth` times as much."""
        lost = self._exchange() if self.are_taken else frozenset()
        self._uses = {key: uses * worth for key, uses in self._uses.items() if uses * worth >= _FORGOTTEN}
        return lost

    def _exchange(self) -> frozenset[K]:
        most = max(1, int(_SHARE_PER_TURN * self._max_slots))
        weakest = nsmallest(most, self._held, key=self._recent_uses)
        strongest = nlargest(most, self._uses.keys() - self._held, key=self._recent_uses)
        pairs = [
            (old, new)
            for old, new in zip(weakest, strongest, strict=False)
            if self._recent_uses(new) > _CLEARLY_MORE * self._recent_uses(old)
        ]
        lost = frozenset(old for old, _ in pairs)
        self._held = (self._held - lost) | {new for _, new in pairs}
        return lost

    def _recent_uses(self, key: K) -> float:
        return self._uses.get(key, 0.0)


class TenantLabels:
    """The first hundred tenants that call keep their labels; all others share one, and so do callers without a key.

    Each label makes a time series of every metric that has it, and tenants may come without end. The slots are never
    turned over: what a tenant has used is added up over days, and its series shall not end meanwhile.
    """

    def __init__(self, max_labels: int = _MAX_TENANTS) -> None:
        self._slots = LabelSlots[str](max_labels)

    @property
    def known(self) -> tuple[str, ...]:
        """Every label that a metric may have had."""
        return (*self._slots.held, *((_OTHERS,) if self._slots.are_taken else ()))

    def of(self, tenant: str | None) -> str:
        """The label for `tenant`; None is someone who has not said who he is."""
        if tenant is None:
            return _NOBODY
        return tenant if self._slots.use(tenant) else _OTHERS


class MatchedRoute(NamedTuple):
    """A method and the template of a path, such as `/v1/tasks/{task}/predict`: never what a caller has written."""

    method: str
    path: str


def matched_route(scope: Scope) -> MatchedRoute:
    """The route that has answered; its path is "none" where the request was refused before, and for unknown paths."""
    method = scope["method"]
    path = getattr(scope.get("route"), "path", _NO_ROUTE)
    return MatchedRoute(method if method in _METHODS else _NO_METHOD, path)
