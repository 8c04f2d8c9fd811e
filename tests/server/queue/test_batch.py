"""The bound of a batch, with one tenant and with several."""

import math
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.spec.decoding import Decoding
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from peltier_server.queue import batch as batch_module
from peltier_server.queue.batch import MIN_SHARED_COST, PRESENT_SECONDS, BatchBounds, BatchLimit, BatchRoom, TicketBatch
from peltier_server.queue.batcher import Batcher
from peltier_server.queue.prices import Price, Prices
from peltier_server.queue.priors import CPU
from peltier_server.queue.ticket import Results, Ticket

BOUNDS = BatchBounds(max_rows=128, max_tokens=4096, max_shared_seconds=0.05)
SECONDS_PER_TOKEN = 1e-4
# From a GPU to a processor that needs half of the bound for the fixed cost of a batch alone.
SPEEDS = st.floats(1e-6, 1e-3)


class Clock:
    """A clock that stands until it is told to go on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(batch_module, "time", clock)
    return clock


def test_one_tenant_alone_has_whole_batches(clock: Clock):
    limit = BatchLimit(BOUNDS)
    for _ in range(3):
        limit.saw(["a"])
    assert limit.cost(SECONDS_PER_TOKEN) == limit.cost(math.inf) == BOUNDS.max_tokens


@pytest.mark.parametrize(
    ("seconds_per_token", "fixed_cost", "cost"),
    [(1e-4, 0, 500), (1e-4, 25, 475), (1e-6, 0, BOUNDS.max_tokens), (1.0, 0, MIN_SHARED_COST), (math.inf, 0, 32)],
)
def test_tenants_who_share_have_batches_bounded_in_time(seconds_per_token, fixed_cost, cost, clock):
    """Whole ones on a fast device; on a slow one, and while the time of a token is unknown, those that are worth it."""
    limit = BatchLimit(BOUNDS)
    limit.saw(["a", "b"])
    assert limit.cost(seconds_per_token, fixed_cost) == cost


@given(seen=st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 2 * PRESENT_SECONDS)), min_size=1))
def test_two_tenants_are_present_if_two_were_seen_lately(seen: list[tuple[str, float]]):
    clock, seen_at = Clock(), dict[str, float]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_module, "time", clock)
        limit = BatchLimit(BOUNDS)
        for tenant, pause in seen:
            limit.saw([tenant])
            seen_at[tenant] = clock.now
            clock.now += pause
        # The last one counts as present: it asks for the batch.
        others = [at for tenant, at in seen_at.items() if tenant != seen[-1][0]]
        is_shared = any(clock.now - at <= PRESENT_SECONDS for at in others)
        assert (limit.cost(SECONDS_PER_TOKEN) < BOUNDS.max_tokens) is is_shared


class Machine:
    """A batcher for MiniLM, and a runner that takes `seconds_per_token` of the clock for each token of cost."""

    def __init__(self, backbone: Backbone, clock: Clock, seconds_per_token: float) -> None:
        self.prices = Prices(backbone)
        self.batcher = Batcher(BOUNDS, max_queue_tokens=10**6, max_decode_rows=64, prices=self.prices)
        self.clock = clock
        self.seconds_per_token = seconds_per_token

    def ask(self, tenant: str, *lengths: int) -> None:
        """Queues a request of rows of so many tokens."""
        rows = [Row(Encoded((5,) * length, (0,) * length)) for length in lengths]
        self.batcher.put([Ticket(rows, self.prices.price(rows), Results(len(rows)), tenant=tenant)])

    def compute(self) -> TicketBatch:
        """Computes the next batch."""
        batch = self.batcher.next(wait=False)
        assert batch is not None
        seconds = self._seconds(batch)
        self.clock.now += seconds
        if batch.tickets:
            self.batcher.learn(batch.tickets, seconds)
        return batch

    def keeps_the_bound(self, batch: TicketBatch) -> bool:
        """Whether a batch takes no longer than the bound, within a twentieth, or has the least that a batch has."""
        is_smallest = batch.num_rows == 1 or _cost(batch) <= MIN_SHARED_COST
        return is_smallest or self._seconds(batch) <= 1.05 * BOUNDS.max_shared_seconds

    def _seconds(self, batch: TicketBatch) -> float:
        return self.seconds_per_token * (CPU.batch + _cost(batch))


def _cost(batch: TicketBatch) -> int:
    return sum(cost for ticket in batch.tickets for cost in ticket.price.rows)


@pytest.fixture
def machine(minilm: Backbone, clock: Clock) -> Machine:
    """One that takes 35 s for 380 rows of 60 tokens."""
    return Machine(minilm, clock, 1.5e-3)


@given(speed=SPEEDS, lengths=st.lists(st.integers(1, 128), min_size=50, max_size=200))
@settings(max_examples=settings().max_examples // 5, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_every_shared_batch_keeps_the_bound(minilm: Backbone, speed: float, lengths: list[int]):
    """At any speed of the machine, from the second batch on; the first one is as small as can be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_module, "time", clock := Clock())
        machine = Machine(minilm, clock, speed)
        machine.ask("a", *lengths)
        machine.ask("b", *lengths)
        first = machine.compute()
        assert first.num_rows == 1 or _cost(first) <= MIN_SHARED_COST
        while (batch := machine.compute()).tickets:
            assert machine.keeps_the_bound(batch)


async def test_one_large_request_keeps_its_tenant_present(machine: Machine):
    """A neighbour that sends single rows finds small batches until the last row of the request has ended."""
    machine.ask("a", *[60] * 380)
    machine.ask("b", 10)
    begun = machine.clock.now
    while (batch := machine.compute()).tickets:
        assert machine.keeps_the_bound(batch)
        if all(ticket.tenant == "a" for ticket in batch.tickets):
            machine.ask("b", 10)
    assert machine.clock.now > begun + 2 * PRESENT_SECONDS


async def test_a_tenant_is_present_while_its_rows_are_computed(machine: Machine):
    """Also if a batch alone takes longer than a tenant stays present after its last row."""
    machine.seconds_per_token = PRESENT_SECONDS / 3000
    machine.ask("a", *[60] * 60)
    assert machine.compute().num_rows == 60
    machine.ask("b", *[60] * 60)
    assert machine.compute().num_rows == 1


async def test_a_tenant_is_present_while_its_texts_are_written(machine: Machine):
    machine.ask("b", *[60] * 60)
    machine.batcher.charge({"a": 1})
    assert machine.compute().num_rows == 1


async def test_idle_time_counts_as_absence(machine: Machine):
    machine.ask("a", 60)
    machine.compute()
    machine.compute()
    machine.clock.now += 2 * PRESENT_SECONDS
    machine.ask("b", *[60] * 60)
    assert machine.compute().num_rows == 60


@given(before=st.floats(5e-5, 2e-4), times=st.floats(1, 5))
@settings(max_examples=settings().max_examples // 5, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_machine_that_slows_down_has_smaller_batches_at_once(minilm: Backbone, before: float, times: float):
    """Half a second of computing later the bound holds again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_module, "time", clock := Clock())
        machine = Machine(minilm, clock, before)
        for tenant in ("a", "b"):
            machine.ask(tenant, *[10] * 2000)
        for _ in range(10):
            machine.compute()
        machine.seconds_per_token *= times
        slow_since = clock.now
        while clock.now < slow_since + 0.5:
            machine.compute()
        assert machine.keeps_the_bound(machine.compute())


@pytest.fixture
def residents(t5: Backbone, make_artifact: Callable[..., bytes]) -> list[Resident]:
    banks = Banks(t5)
    return [banks.add(read_artifact(make_artifact(t5, "lora", seed=seed), t5)) for seed in range(2)]


async def test_each_adapter_of_a_step_costs_its_weights_once(residents: list[Resident]) -> None:
    """Two texts of one adapter fit into 12 where two of different adapters do not."""
    first, second = residents

    def make_draft(resident: Resident) -> Ticket:
        row = Row(Encoded((5,), (0,)), resident)
        return Ticket([row], Price([1], [1], step=2, step_weights=5), Results(1), decoding=Decoding(2))

    for another, fits in ((first, True), (second, False)):
        room = BatchRoom(cost=1000, rows=100, steps=12, alone=False)
        assert room.admits(make_draft(first), 1)
        room.adapters.add(first)
        assert room.admits(make_draft(another), 1) == fits
