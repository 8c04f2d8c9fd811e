"""Whose turn it is: tenants share what is computed by their weights, in estimated cost."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from peltier_server.fairness.ranking import Ranking
from peltier_server.fairness.size_index import SizeIndex

# The weight of the tenant that is named.
WeightOf = Callable[[str], float]

# Virtual time is counted in whole steps, which never lose precision, however long the queue never runs dry.
_STEPS = 10**9


class Item(Hashable, Protocol):
    """What waits. Nothing of it changes meanwhile."""

    @property
    def tenant(self) -> str:
        """Who is served with it."""

    @property
    def pass_cost(self) -> int:
        """What it costs, in tokens of the plain backbone that take as long; at least 1."""

    @property
    def rank(self) -> float:
        """Its place among its tenant's items: smaller is earlier, equal ones in the order in which they came."""


T = TypeVar("T", bound=Item)


@dataclass(eq=False)
class _Line(Generic[T]):
    """One tenant's items. `tag` is its virtual time; of equal tags the smaller `turn` is first."""

    tenant: str
    tag: int
    turn: int
    items: Ranking[float, T] = field(default_factory=Ranking)
    head: T | None = None


class Scheduler(Generic[T]):
    """Weighted fair queueing by virtual time (start-time fair queueing; Goyal, Vin and Cheng, SIGCOMM 1996).

    Each tenant with something waiting has a tag. Serving it a cost c moves its tag on by c / weight, and the smallest
    tag is next. Into room that is too small for that tenant's item goes the next one that fits, but only if its tenant
    is then at most half a batch of its own, h / weight, ahead of the one that is passed over: nobody could be given a
    share if whoever has small items took all the room between large ones.

    **The bound.** While two tenants f and m both wait, tag(f) - tag(m) <= L(f) / weight(f), where L(f) is the larger of
    h and f's longest item: only serving f widens the gap, and it did so either when f's tag was the smallest of all or
    within the limit above, while m's never falls. A tenant that begins to wait gets the larger of the smallest tag and
    its own of before, so the gap also holds for it. Tags move on by what is served, so over any time in which both
    wait and keep their weights,

        | served(f) / weight(f) - served(m) / weight(m) |  <=  L(f) / weight(f) + L(m) / weight(m),

    which for equal weights is one batch, or two items where one is longer than half a batch. What is charged besides
    items (`charge`) comes on top: it is never held back for anybody's share.

    Who does not wait has no tag to fall behind with, so nothing is banked; and who was served while nobody else waited
    is level with those who come, so nothing is held against it. What it got beside others it cannot shed by leaving for
    a moment: a tag from before counts until the smallest one has passed it.

    Every call is O(log tenants + log items). Belongs to one thread at a time.
    """

    def __init__(self, max_batch_tokens: int, weight_of: WeightOf) -> None:
        """`weight_of` is asked whenever a tenant is served, so a change holds from the next item on."""
        self._max_batch_tokens = max_batch_tokens
        self._max_lead = max_batch_tokens // 2
        self._weight_of = weight_of
        self._lines: dict[str, _Line[T]] = {}
        self._heads = SizeIndex[_Line[T]](max_batch_tokens)
        # The tags of those who do not wait, as long as they are ahead of somebody who does.
        self._left = Ranking[int, str]()
        self._num_items = 0
        self._num_turns = 0

    def __len__(self) -> int:
        return self._num_items

    def __contains__(self, item: T) -> bool:
        line = self._lines.get(item.tenant)
        return line is not None and item in line.items

    def put(self, item: T) -> None:
        """Lets it wait."""
        line = self._lines.get(item.tenant) or self._begin(item.tenant)
        line.items.put(item, item.rank)
        self._num_items += 1
        if line.items.first is not line.head:
            self._place(line)

    def next(self, max_cost: int | None = None) -> T | None:
        """The item whose turn it is, of any cost or of at most `max_cost`; None if none may go now."""
        line = self._heads.first
        if line is None or max_cost is None or _size(line) <= max_cost:
            return None if line is None else line.head
        other = self._heads.first_within(min(max_cost, self._max_batch_tokens)) if max_cost > 0 else None
        return None if other is None or self._would_lead(other, line) else other.head

    def serve(self, item: T) -> None:
        """It waits no longer, and its tenant has had what it costs."""
        line = self._lines[item.tenant]
        line.items.remove(item)
        self._num_items -= 1
        self._advance(line, item.pass_cost)

    def remove(self, item: T) -> None:
        """It waits no longer, and costs nothing."""
        line = self._lines[item.tenant]
        line.items.remove(item)
        self._num_items -= 1
        if line.head is item:
            self._place(line)

    def charge(self, tenant: str, cost: int) -> None:
        """A tenant has had so much besides its items."""
        line = self._lines.get(tenant)
        if line is not None:
            self._advance(line, cost)
        elif self._lines:
            self._remember(tenant, self._tag_for(tenant) + cost * self._step(tenant))

    def _begin(self, tenant: str) -> _Line[T]:
        line = self._lines[tenant] = _Line(tenant, self._tag_for(tenant), self._turn())
        if tenant in self._left:
            self._left.remove(tenant)
        return line

    def _advance(self, line: _Line[T], cost: int) -> None:
        line.tag += cost * self._step(line.tenant)
        line.turn = self._turn()
        self._place(line)

    def _place(self, line: _Line[T]) -> None:
        """Puts a tenant where its tag and its first item belong, or out of the way if nothing of it waits any more."""
        before, line.head = line.head, line.items.first
        if line.head is None:
            self._end(line, before)
        elif before is None:
            self._heads.put(line, line.head.pass_cost, (line.tag, line.turn))
        else:
            self._heads.move(line, before.pass_cost, line.head.pass_cost, (line.tag, line.turn))

    def _end(self, line: _Line[T], last: T | None) -> None:
        del self._lines[line.tenant]
        if last is not None:
            self._heads.remove(line, last.pass_cost)
        if self._lines:
            self._remember(line.tenant, line.tag)
        else:
            self._left.clear()

    def _tag_for(self, tenant: str) -> int:
        """Where a tenant begins: level with the least served, unless it was ahead of that when it left."""
        now = self._now
        return max(now, self._left.rank(tenant)) if tenant in self._left else now

    def _remember(self, tenant: str, tag: int) -> None:
        if tenant in self._left:
            self._left.remove(tenant)
        self._left.put(tenant, tag)
        now = self._now
        while (oldest := self._left.first) is not None and self._left.rank(oldest) <= now:
            self._left.remove(oldest)

    def _would_lead(self, line: _Line[T], passed: _Line[T]) -> bool:
        """Whether the item of `line` would take it too far ahead of the tenant that is passed over."""
        return line.tag - passed.tag > (self._max_lead - _size(line)) * self._step(line.tenant)

    @property
    def _now(self) -> int:
        """The smallest tag; it never falls while anything waits."""
        line = self._heads.first
        return 0 if line is None else line.tag

    def _step(self, tenant: str) -> int:
        return round(_STEPS / self._weight_of(tenant))

    def _turn(self) -> int:
        self._num_turns += 1
        return self._num_turns


def _size(line: _Line[T]) -> int:
    assert line.head is not None, "a tenant among the heads has an item"
    return line.head.pass_cost
