"""The order of tenants: every promise of the scheduler, for any tenants, weights and items."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, combinations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from peltier_server.fairness.scheduler import Ranking, Scheduler

BATCH = 40
WEIGHTS = {"a": 1.0, "b": 3.0, "c": 0.5, "d": 40.0}
TENANTS = sorted(WEIGHTS)
SIZES = st.integers(1, BATCH // 2)
ANY_SIZES = st.one_of(SIZES, st.integers(1, 2 * BATCH))
WAITING = st.lists(st.tuples(st.sampled_from(TENANTS), ANY_SIZES), max_size=120)
BACKLOG = st.lists(st.tuples(st.sampled_from(TENANTS), ANY_SIZES), min_size=40, max_size=120)


def test_those_who_left_take_no_room() -> None:
    """A key that never comes first may stand behind any number that come and go."""
    ranking = Ranking[int, int]()
    ranking.put(-1, 0)
    for key in range(1000):
        ranking.put(key, 1)
        ranking.remove(key)
    assert len(ranking._heap) < 50
    assert ranking.first == -1


@dataclass(eq=False)
class Item:
    """Something that waits."""

    tenant: str
    pass_cost: int
    rank: float = 0.0


def make_scheduler(items: Iterable[Item] = (), batch: int = BATCH) -> Scheduler[Item]:
    scheduler = Scheduler[Item](batch, WEIGHTS.__getitem__)
    for item in items:
        scheduler.put(item)
    return scheduler


def take_batch(scheduler: Scheduler[Item], room: int = BATCH) -> list[Item]:
    """One batch, filled as the server fills it."""
    batch: list[Item] = []
    while (item := scheduler.next(room if batch else None)) is not None:
        scheduler.serve(item)
        room -= item.pass_cost
        batch.append(item)
    return batch


def batches(scheduler: Scheduler[Item]) -> Iterator[list[Item]]:
    return iter(lambda: take_batch(scheduler), [])


def gap(one: str, other: str, served: Counter[str]) -> float:
    return abs(lead(one, other, served))


def lead(one: str, other: str, served: Counter[str]) -> float:
    return served[one] / WEIGHTS[one] - served[other] / WEIGHTS[other]


def bound(one: str, other: str, longest: Mapping[str, int]) -> float:
    """How far apart two may be: L(one) / weight(one) + L(other) / weight(other)."""
    return sum(max(BATCH / 2, longest.get(tenant, 0)) / WEIGHTS[tenant] for tenant in (one, other)) + 1e-6


@given(waiting=BACKLOG, long=st.sets(st.sampled_from(TENANTS)))
def test_nobody_is_ahead_by_more_than_the_bound(waiting: list[tuple[str, int]], long: set[str]) -> None:
    """Over any batches in which two tenants wait, whatever their items, weights and company: that is one batch, or more
    for who has items longer than half of one."""
    items = [Item(tenant, size + BATCH * (tenant in long)) for tenant, size in waiting]
    left, history = Counter(item.tenant for item in items), [Counter[str]()]
    backlogged: dict[str, int] = {}
    for number, batch in enumerate(batches(make_scheduler(items))):
        served = Counter[str]()
        for item in batch:
            served[item.tenant] += item.pass_cost
        left.subtract(item.tenant for item in batch)
        history.append(history[-1] + served)
        backlogged |= {tenant: number + 1 for tenant in TENANTS if left[tenant] > 0}
    longest = {tenant: max((one.pass_cost for one in items if one.tenant == tenant), default=0) for tenant in TENANTS}
    for one, other in combinations(TENANTS, 2):
        end = min(backlogged.get(one, 0), backlogged.get(other, 0))
        leads = [lead(one, other, served) for served in history[: end + 1]]
        assert max(leads) - min(leads) <= bound(one, other, longest)


@given(waiting=BACKLOG)
@example(waiting=[*[("a", 1)] * (BATCH // 2 - 1), ("a", BATCH // 2), ("a", 1), ("c", 2 * BATCH)])
def test_nobody_gets_ahead_by_more_than_its_own_item(waiting: list[tuple[str, int]]) -> None:
    """After each item, its tenant is ahead of every other one that still waits by half a batch at most, or by its own
    longest item. The sum of both tenants' bounds also holds where an item is let in without counting its own cost."""
    items = [Item(*one) for one in waiting]
    left, served = Counter(item.tenant for item in items), Counter[str]()
    longest = {tenant: max((one.pass_cost for one in items if one.tenant == tenant), default=0) for tenant in TENANTS}
    for item in chain.from_iterable(batches(make_scheduler(items))):
        one = item.tenant
        served[one] += item.pass_cost
        left[one] -= 1
        for other in left.keys() - {one}:
            ahead = lead(one, other, served)
            assert not left[other] or ahead <= max(BATCH / 2, longest[one]) / WEIGHTS[one] + 1e-6


@given(waiting=WAITING)
def test_room_is_left_only_for_the_sake_of_the_share(waiting: list[tuple[str, int]]) -> None:
    """While an item fits, the batch is not done, unless the next tenant with such an item would be half a batch
    ahead."""
    scheduler = make_scheduler(Item(*one) for one in waiting)
    while batch := take_batch(scheduler):
        room = BATCH - sum(item.pass_cost for item in batch)
        lines = scheduler._lines.values()
        fitting = [line for line in lines if line.head.pass_cost <= room]
        if fitting:
            first = min(fitting, key=lambda line: (line.tag, line.turn))
            step = scheduler._step(first.tenant)
            ahead = first.tag - min(line.tag for line in lines) + first.head.pass_cost * step
            assert ahead > BATCH // 2 * step


def test_leaving_for_a_moment_gains_nothing() -> None:
    """Who asks again as soon as it is served has its share like one that asks for all at once."""
    scheduler = make_scheduler(Item("a", 1) for _ in range(400))
    served = Counter[str]()
    for _ in range(100):
        if "c" not in scheduler._lines:
            scheduler.put(Item("c", 20))
        item = scheduler.next()
        scheduler.serve(item)
        served[item.tenant] += item.pass_cost
    assert served["c"] / WEIGHTS["c"] <= served["a"] / WEIGHTS["a"] + BATCH / WEIGHTS["c"]


def test_priority_is_inside_a_tenant_alone() -> None:
    """An early rank comes before the tenant's own items, and takes nothing from anybody else."""
    urgent = [Item("a", 10, rank=-1.0) for _ in range(20)]
    items = [item for pair in zip(urgent, (Item("a", 10) for _ in urgent), strict=True) for item in reversed(pair)]
    scheduler = make_scheduler([*items, *(Item("c", 10) for _ in urgent)])
    taken = [item for _ in range(6) for item in take_batch(scheduler)]
    own = [item for item in taken if item.tenant == "a"]
    assert own == urgent[: len(own)]
    assert sum(item.tenant == "c" for item in taken) == 8


def test_a_weight_holds_from_the_next_item_on() -> None:
    """Nothing needs to know that it has changed."""
    weights = {"a": 1.0, "b": 1.0}
    scheduler = Scheduler[Item](BATCH, weights.__getitem__)
    for _ in range(100):
        scheduler.put(Item("a", 4))
        scheduler.put(Item("b", 4))
    even = Counter(item.tenant for _ in range(4) for item in take_batch(scheduler))
    weights["b"] = 4.0
    uneven = Counter(item.tenant for _ in range(4) for item in take_batch(scheduler))
    assert even == {"a": 20, "b": 20}
    assert uneven == {"a": 8, "b": 32}


def test_an_item_longer_than_a_batch_is_not_passed_over_for_ever() -> None:
    """It leads the next batch, and its tenant pays for all of it."""
    scheduler = make_scheduler([Item("c", 3 * BATCH), *(Item("a", 1) for _ in range(4 * BATCH)), Item("c", 1)])
    sizes = [[item.pass_cost for item in batch if item.tenant == "c"] for batch in batches(scheduler)]
    assert sizes[0] == [3 * BATCH]
    assert sizes[-1] == [1]


def test_many_that_do_not_fit_hide_nobody() -> None:
    scheduler = Scheduler[Item](BATCH, lambda _: 1.0)
    for number in range(2000):
        scheduler.put(Item(f"long-{number}", BATCH - 10))
    scheduler.put(Item("small", 10))
    assert [item.pass_cost for item in take_batch(scheduler)] == [BATCH - 10, 10]


class Turns(RuleBasedStateMachine):
    """Tenants come, are served, leave and are charged in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = make_scheduler()
        self.waiting: list[Item] = []
        self.longest: Counter[str] = Counter()
        self.since: defaultdict[frozenset[str], Counter[str]] = defaultdict(Counter)

    @rule(tenant=st.sampled_from(TENANTS), sizes=st.lists(ANY_SIZES, min_size=1, max_size=5), rank=st.integers(0, 2))
    def put(self, tenant: str, sizes: list[int], rank: int) -> None:
        for size in sizes:
            item = Item(tenant, size, rank)
            self.scheduler.put(item)
            self.waiting.append(item)
            self.longest |= Counter({tenant: size})

    @precondition(lambda self: self.waiting)
    @rule()
    def serve(self) -> None:
        batch = take_batch(self.scheduler)
        for item in batch:
            self.waiting.remove(item)
            self._watch()
            for served in self.since.values():
                served[item.tenant] += item.pass_cost
        assert batch
        assert sum(item.pass_cost for item in batch) <= BATCH or len(batch) == 1

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 10**6))
    def cancel(self, which: int) -> None:
        self.scheduler.remove(self.waiting.pop(which % len(self.waiting)))

    @invariant()
    def the_first_of_each_tenant_is_the_one_with_the_smallest_rank(self) -> None:
        for tenant in TENANTS:
            own = [item for item in self.waiting if item.tenant == tenant]
            line = self.scheduler._lines.get(tenant)
            assert (line and line.head) == min(own, key=lambda item: item.rank, default=None)

    @invariant()
    def two_who_wait_are_within_the_bound(self) -> None:
        self._watch()
        for (one, other), served in [(sorted(pair), served) for pair, served in self.since.items()]:
            assert gap(one, other, served) <= bound(one, other, self.longest)

    @invariant()
    def all_that_wait_are_there(self) -> None:
        assert len(self.scheduler) == len(self.waiting)
        assert all(item in self.scheduler for item in self.waiting)

    def _watch(self) -> None:
        """Counts what each pair of tenants gets while both wait, from when they began to."""
        there = {item.tenant for item in self.waiting}
        for pair in map(frozenset, combinations(TENANTS, 2)):
            if not pair <= there:
                self.since.pop(pair, None)
            elif pair not in self.since:
                self.since[pair] = Counter()


TestTurns = Turns.TestCase
TestTurns.settings = settings(stateful_step_count=40)


def test_what_is_written_is_charged() -> None:
    """A text costs its tenant what it writes, when it writes it, so that others come before its next one."""
    scheduler = make_scheduler([*(Item("a", 1) for _ in range(9)), *(Item("b", 1) for _ in range(90))])
    scheduler.serve(scheduler.next())
    scheduler.charge("a", 20)
    order = []
    for _ in range(70):
        item = scheduler.next()
        scheduler.serve(item)
        order.append(item.tenant)
    assert order.index("a") in (63, 64)


def test_being_charged_counts_for_those_who_come_back() -> None:
    """Also for a tenant that waits for nothing just then, as long as somebody does."""
    scheduler = make_scheduler(Item("a", 1) for _ in range(50))
    scheduler.charge("c", 10)
    scheduler.put(Item("c", 1))
    order = []
    for _ in range(25):
        item = scheduler.next()
        scheduler.serve(item)
        order.append(item.tenant)
    assert order.index("c") in (20, 21)
