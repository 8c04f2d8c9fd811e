"""Fair scheduling: tenants share the estimated cost of computation by their weights. Also the priority queue that the
scheduler uses."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", int, float, tuple[int, int])
Rank = tuple[int, int]

# Removed entries that may stay in the heap, besides as many as there are live entries.
_SLACK = 16

# The weight of a tenant, by name.
WeightOf = Callable[[str], float]

# Virtual time is counted in integer steps, which never lose precision, however long the queue is not empty.
_STEPS = 10**9


class Ranking(Generic[R, K]):
    """The key with the smallest rank is first; equal ranks are in insertion order. Calls take O(log n), amortised."""

    def __init__(self) -> None:
        self._heap: list[tuple[R, int, K]] = []
        self._entries: dict[K, tuple[R, int, K]] = {}
        self._num_put = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    @property
    def first(self) -> K | None:
        """The first key, if there is one."""
        # Removed keys leave the heap only here, where their position is known.
        while self._heap:
            entry = self._heap[0]
            if self._entries.get(entry[2]) is entry:
                return entry[2]
            heappop(self._heap)
        return None

    def rank(self, key: K) -> R:
        """The rank of a key."""
        return self._entries[key][0]

    def put(self, key: K, rank: R) -> None:
        """Adds a key that is not in the queue."""
        self._num_put += 1
        entry = self._entries[key] = (rank, self._num_put, key)
        heappush(self._heap, entry)

    def remove(self, key: K) -> None:
        """Removes a key."""
        del self._entries[key]
        if len(self._heap) > 2 * len(self._entries) + _SLACK:
            self._heap = list(self._entries.values())
            heapify(self._heap)


class Item(Hashable, Protocol):
    """A waiting item. While it waits only `charge` for a part of it may change its `pass_cost`, and nothing else."""

    @property
    def tenant(self) -> str:
        """The tenant that is charged for it."""

    @property
    def pass_cost(self) -> int:
        """Its cost in tokens of the plain backbone, at least 1."""

    @property
    def rank(self) -> float:
        """Its order among its tenant's items: the smallest rank is first, and equal ranks are in order of arrival."""


T = TypeVar("T", bound=Item)


@dataclass(eq=False)
class _TenantItems(Generic[T]):
    """One tenant's items. `tag` is its virtual time; of equal tags the smaller `turn` is first."""

    tenant: str
    tag: int
    turn: int
    items: Ranking[float, T] = field(default_factory=Ranking)
    head: T | None = None
    head_cost: int = 0


class Scheduler(Generic[T]):
    """Weighted fair queueing by virtual time (start-time fair queueing; Goyal, Vin and Cheng, SIGCOMM 1996).

    Each tenant that waits has a tag. Serving it a cost c advances its tag by c / weight, and the tenant with the
    smallest tag is next. If the rest of the batch is too small for that tenant's item, the next item that fits is
    served, but only if its tenant is then at most half a batch, h / weight, ahead of the tenant that is passed over.
    Otherwise tenants with small items would fill every batch before large items.

    **The bound.** While two tenants f and m both wait, tag(f) - tag(m) <= L(f) / weight(f), where L(f) is the larger of
    h and f's longest item. Only serving f widens the gap, and that happens either when f's tag is the smallest of all
    or within the limit above, while m's tag never decreases. A tenant that begins to wait gets the larger of the
    smallest tag and its former tag, so the bound also holds for it. Tags advance by the served cost, so over any time
    in which both wait and keep their weights,

        | served(f) / weight(f) - served(m) / weight(m) |  <=  L(f) / weight(f) + L(m) / weight(m),

    which for equal weights is one batch, or two items if one is longer than half a batch. Other costs (`charge`) come
    on top, because they are never delayed.

    A tenant that does not wait has no tag, so it saves up no credit. A tenant that was served while no other waited is
    level with new ones, so it has no debt. A tenant cannot lose the debt from a shared time by leaving for a moment:
    its former tag counts until the smallest tag has passed it.

    Calls are O(log tenants + log items), but the search for an item that fits looks at each waiting tenant. Belongs to
    one thread at a time.
    """

    def __init__(self, max_batch_tokens: int, weight_of: WeightOf) -> None:
        """Calls `weight_of` for each served item, so a changed weight applies from the next item on."""
        self._max_lead = max_batch_tokens // 2
        self._weight_of = weight_of
        self._lines: dict[str, _TenantItems[T]] = {}
        self._order = Ranking[Rank, _TenantItems[T]]()
        # The tags of tenants that do not wait, as long as these are ahead of one that waits.
        self._left = Ranking[int, str]()
        self._num_items = 0
        self._num_turns = 0

    def __len__(self) -> int:
        return self._num_items

    def __contains__(self, item: T) -> bool:
        line = self._lines.get(item.tenant)
        return line is not None and item in line.items

    @property
    def is_shared(self) -> bool:
        """Whether items of several tenants wait."""
        return len(self._lines) > 1

    def put(self, item: T) -> None:
        """Adds an item."""
        line = self._lines.get(item.tenant) or self._begin(item.tenant)
        line.items.put(item, item.rank)
        self._num_items += 1
        if line.items.first is not line.head:
            self._place(line)

    def next(self, max_cost: int | None = None) -> T | None:
        """The next item, of any cost or of at most `max_cost`; None if no item may be served now."""
        line = self._order.first
        if line is None or max_cost is None or line.head_cost <= max_cost:
            return None if line is None else line.head
        fitting = (other for other in self._lines.values() if other.head_cost <= max_cost)
        other = min(fitting, key=self._order.rank, default=None)
        return None if other is None or self._would_lead(other, line) else other.head

    def serve(self, item: T, cost: int | None = None) -> None:
        """Removes an item and charges its tenant `cost`, which is its `pass_cost` by default."""
        line = self._lines[item.tenant]
        line.items.remove(item)
        self._num_items -= 1
        self._advance(line, item.pass_cost if cost is None else cost)

    def remove(self, item: T) -> None:
        """Removes an item without a charge."""
        line = self._lines[item.tenant]
        line.items.remove(item)
        self._num_items -= 1
        if line.head is item:
            self._place(line)

    def charge(self, tenant: str, cost: int) -> None:
        """Charges a tenant for a cost besides its items, or for a part of its first item, whose `pass_cost` is now that
        of the rest."""
        line = self._lines.get(tenant)
        if line is not None:
            self._advance(line, cost)
        elif self._lines:
            self._remember(tenant, self._tag_for(tenant) + cost * self._step(tenant))

    def _begin(self, tenant: str) -> _TenantItems[T]:
        line = self._lines[tenant] = _TenantItems(tenant, self._tag_for(tenant), self._turn())
        if tenant in self._left:
            self._left.remove(tenant)
        return line

    def _advance(self, line: _TenantItems[T], cost: int) -> None:
        line.tag += cost * self._step(line.tenant)
        line.turn = self._turn()
        self._place(line)

    def _place(self, line: _TenantItems[T]) -> None:
        """Updates a tenant's position after a change of its tag or first item; removes it if no item waits."""
        line.head = line.items.first
        line.head_cost = 0 if line.head is None else line.head.pass_cost
        if line in self._order:
            self._order.remove(line)
        if line.head is None:
            self._end(line)
        else:
            self._order.put(line, (line.tag, line.turn))

    def _end(self, line: _TenantItems[T]) -> None:
        del self._lines[line.tenant]
        if self._lines:
            self._remember(line.tenant, line.tag)
        else:
            self._left = Ranking()

    def _tag_for(self, tenant: str) -> int:
        """The tag of a new tenant: the smallest tag, or its former one if that is larger."""
        now = self._now
        return max(now, self._left.rank(tenant)) if tenant in self._left else now

    def _remember(self, tenant: str, tag: int) -> None:
        if tenant in self._left:
            self._left.remove(tenant)
        self._left.put(tenant, tag)
        now = self._now
        while (oldest := self._left.first) is not None and self._left.rank(oldest) <= now:
            self._left.remove(oldest)

    def _would_lead(self, line: _TenantItems[T], passed: _TenantItems[T]) -> bool:
        """Whether serving the item of `line` would put it too far ahead of the passed tenant."""
        return line.tag - passed.tag > (self._max_lead - line.head_cost) * self._step(line.tenant)

    @property
    def _now(self) -> int:
        """The smallest tag; it never decreases while an item waits."""
        line = self._order.first
        return 0 if line is None else line.tag

    def _step(self, tenant: str) -> int:
        return round(_STEPS / self._weight_of(tenant))

    def _turn(self) -> int:
        self._num_turns += 1
        return self._num_turns
