"""The queue's promises, for any sequence of rows."""

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.batch.row import Row
from peltier_adapters.spec.decoding import Decoding
from peltier_backbone.text.packing import Encoded
from peltier_client.errors import DeadlinePassed, Draining, InferenceFailed, QueueFull, TooLarge
from peltier_server.queue.batch import BatchBounds, TicketBatch
from peltier_server.queue.batcher import Batcher
from peltier_server.queue.prices import price_tokens
from peltier_server.queue.ticket import Results, Terms, Ticket

from tests.server.conftest import until

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=40)


def make_row(tokens: int) -> Row:
    return Row(Encoded((0,) * tokens, (0,) * tokens))


def make_ticket(tokens: int, deadline: float = math.inf, **given: object) -> Ticket:
    row = make_row(tokens)
    price = price_tokens([row], drafted="decoding" in given)
    return Ticket([row], price, Results(1), deadline=deadline, **given)


def make_draft(tokens, deadline=math.inf, *, beams=1, new_tokens=5, tenant="default"):
    return make_ticket(tokens, deadline, decoding=Decoding(new_tokens, num_beams=beams), tenant=tenant)


def make_batcher(tokens: int = 16, rows: int = 4, queue: int = 10_000, decode_rows: int = 4) -> Batcher:
    return Batcher(
        BatchBounds(rows, tokens),
        max_queue_tokens=queue,
        max_decode_rows=decode_rows,
        weight_of={"default": 1.0, "a": 1.0, "b": 3.0}.__getitem__,
    )


def drain(batcher: Batcher) -> list[TicketBatch]:
    batcher.close()
    return list(iter(batcher.next, None))


@given(lengths=LENGTHS, tokens=st.integers(1, 40), rows=st.integers(1, 8))
async def test_no_batch_exceeds_its_budget(lengths: list[int], tokens: int, rows: int) -> None:
    """Only a row that alone is too long makes a batch too long, and then it is alone."""
    batcher = make_batcher(tokens, rows)
    batcher.put([make_ticket(length) for length in lengths])
    for batch in drain(batcher):
        assert 1 <= len(batch.tickets) <= rows
        assert batch.tokens <= tokens or len(batch.tickets) == 1


async def test_running_rows_are_those_of_the_last_batch_and_of_the_texts() -> None:
    """With the beams of texts; none once the runner asks for work and there is none."""
    batcher = make_batcher(tokens=40)
    batcher.put([make_ticket(3), make_ticket(3)])
    batcher.put([make_draft(3, beams=2)])
    assert batcher.running_rows == 0
    batcher.next()
    assert batcher.running_rows == 4
    batcher.next(live_rows=2, live_cost=2)
    assert batcher.running_rows == 2
    batcher.next(wait=False)
    assert batcher.running_rows == 0


@given(requests=st.lists(LENGTHS, max_size=6), tokens=st.integers(1, 40), max_short_tokens=st.integers(1, 40))
async def test_long_rows_leave_for_the_background_only(requests, tokens, max_short_tokens):
    """Each row leaves once and in order, the long ones by `next_background`; all count as waiting until then."""
    batcher = Batcher(
        BatchBounds(4, tokens, max_short_tokens=max_short_tokens), max_queue_tokens=10_000, max_decode_rows=4
    )
    batcher.start_background = lambda: None
    tickets = [[make_ticket(length) for length in lengths] for lengths in requests]
    for request in tickets:
        batcher.put(request)
    every = [ticket for request in tickets for ticket in request]
    assert batcher.queued_rows == len(every)
    long = [ticket for batch in iter(batcher.next_background, None) for ticket in batch.tickets]
    assert long == [ticket for ticket in every if ticket.tokens > max_short_tokens]
    short = [ticket for batch in drain(batcher) for ticket in batch.tickets]
    assert short == [ticket for ticket in every if ticket.tokens <= max_short_tokens]
    assert (batcher.queued_rows, batcher.queued_tokens, batcher.queued_tokens_by_tenant()) == (0, 0, {})


@pytest.mark.parametrize("max_short_tokens", [40, math.inf])
async def test_rows_that_nobody_waits_for_leave_for_the_background(max_short_tokens: float) -> None:
    """However short they are; without a background they wait with all others. Texts are always written with others."""
    bounds = BatchBounds(4, 16, max_short_tokens=max_short_tokens)
    batcher = Batcher(bounds, max_queue_tokens=10_000, max_decode_rows=4)
    batcher.start_background = lambda: None
    patient, live = make_ticket(3, background=True), make_ticket(3)
    draft = make_ticket(3, background=True, decoding=Decoding(5))
    batcher.put([patient, live])
    batcher.put([draft])
    assert (batcher.queued_rows, batcher.live_rows) == (3, 1)
    taken = batcher.next()
    assert taken is not None
    assert taken.drafts == (draft,)
    if max_short_tokens == math.inf:
        assert taken.tickets == (patient, live)
    else:
        assert taken.tickets == (live,)
        found = batcher.next_background()
        assert found is not None
        assert found.tickets == (patient,)
    assert batcher.next_background() is None


async def test_the_background_starts_when_a_long_row_waits() -> None:
    batcher = Batcher(BatchBounds(1, 16, max_short_tokens=8), max_queue_tokens=10_000, max_decode_rows=4)
    started: list[int] = []
    batcher.start_background = lambda: started.append(len(started))
    batcher.put([make_ticket(8)])
    assert started == []
    batcher.put([make_ticket(9)])
    batcher.put([make_ticket(9)])
    assert batcher.next_background() is not None
    assert (started, batcher.running_rows) == ([0], 1)
    assert batcher.next_background() is not None
    assert batcher.next_background() is None
    assert batcher.running_rows == 0
    batcher.put([make_ticket(9)])
    assert started == [0, 1]


async def test_a_thread_that_cannot_be_started_refuses_the_long_row() -> None:
    batcher = Batcher(BatchBounds(1, 16, max_short_tokens=8), max_queue_tokens=10_000, max_decode_rows=4)
    with pytest.raises(RuntimeError, match="no thread computes in the background"):
        batcher.put([make_ticket(8), make_ticket(9)])
    assert batcher.queued_rows == 0
    batcher.put([make_ticket(8)])
    assert [len(batch.tickets) for batch in drain(batcher)] == [1]


@given(
    requests=st.lists(st.tuples(st.sampled_from(("default", "a", "b")), LENGTHS, st.integers(0, 2)), max_size=6),
    tokens=st.integers(1, 40),
    rows=st.integers(1, 8),
)
async def test_the_rows_of_a_ticket_leave_as_if_each_had_its_own(requests, tokens, rows):
    def batches(*, together: bool) -> list[list[Row]]:
        batcher = make_batcher(tokens, rows)
        for tenant, own, priority in kept:
            results, runs = Results(len(own)), [own] if together else [[row] for row in own]
            places = zip(runs, range(len(runs)), strict=True)
            given = {"tenant": tenant, "priority": priority, "queued_at": 0.0}
            batcher.put(
                [Ticket(run, price_tokens(run, drafted=False), results, place, **given) for run, place in places]
            )
        found = [batch.rows for batch in drain(batcher)]
        assert batcher.queued_tokens == 0
        return found

    kept = [(tenant, [make_row(length) for length in lengths], priority) for tenant, lengths, priority in requests]
    together, apart = batches(together=True), batches(together=False)
    assert [{id(row) for row in batch} for batch in together] == [{id(row) for row in batch} for batch in apart]


@pytest.mark.parametrize("make", [make_ticket, make_draft])
@given(lengths=LENGTHS, cancelled=st.sets(st.integers(0, 39)), late=st.sets(st.integers(0, 39)))
async def test_who_is_cancelled_or_late_is_not_computed(make, lengths, cancelled, late):
    """A cancelled row or draft vanishes, one past its deadline fails with `DeadlinePassed`, all others are computed."""
    batcher = make_batcher()
    tickets = [make(length, 0.0 if place in late else math.inf) for place, length in enumerate(lengths)]
    batcher.put(tickets)
    for place in cancelled & set(range(len(tickets))):
        tickets[place].future.cancel()
    taken = [ticket for batch in drain(batcher) for ticket in (*batch.tickets, *batch.drafts)]
    await asyncio.sleep(0)
    assert taken == [one for place, one in enumerate(tickets) if place not in cancelled | late]
    failed = [one for place, one in enumerate(tickets) if place in late - cancelled]
    assert all(isinstance(one.future.exception(), DeadlinePassed) for one in failed)
    assert batcher.queued_tokens == 0


async def test_a_full_queue_takes_nothing_of_a_request() -> None:
    batcher = make_batcher(queue=10)
    batcher.put([make_ticket(6)])
    with pytest.raises(QueueFull, match="6 tokens wait of at most 10; 5 more do not fit") as caught:
        batcher.put([make_ticket(1), make_ticket(4)])
    assert caught.value.retry_after == 1
    assert batcher.queued_tokens == 6


async def test_what_can_never_fit_is_too_large() -> None:
    """Coming back later would not help, so it is not told to."""
    with pytest.raises(TooLarge, match="the request costs 31 tokens; at most 30 of one tenant may wait"):
        make_batcher(queue=40).put([make_ticket(31)])


async def test_a_flooded_queue_has_room_for_others() -> None:
    """One tenant may have three times what it leaves free, so beside any number of floods the next tenant gets in."""
    batcher = make_batcher(queue=400)
    for _ in range(30):
        batcher.put([make_ticket(10, tenant="a")])
    with pytest.raises(QueueFull, match="300 tokens of tenant 'a' wait; 10 more would leave 90 of 400 to others"):
        batcher.put([make_ticket(10, tenant="a")])
    for _ in range(7):
        batcher.put([make_draft(5, tenant="b")])
    with pytest.raises(QueueFull, match="70 tokens of tenant 'b' wait"):
        batcher.put([make_draft(5, tenant="b")])
    batcher.put([make_ticket(10)])


async def test_a_closed_batcher_serves_what_waits_and_takes_nothing() -> None:
    batcher = make_batcher()
    batcher.put([make_ticket(1)])
    batcher.close()
    with pytest.raises(Draining):
        batcher.put([make_ticket(1)])
    assert len(batcher.next().tickets) == 1
    assert batcher.next() is None


async def test_next_waits_for_rows() -> None:
    """The runner sleeps while there is nothing to do, and wakes for the first row."""
    batcher = make_batcher()
    taken: list[TicketBatch | None] = []
    thread = threading.Thread(target=lambda: taken.append(batcher.next()))
    thread.start()
    await until(lambda: batcher._changed._waiters)
    assert taken == []
    ticket = make_ticket(1)
    batcher.put([ticket])
    await asyncio.to_thread(thread.join, 60)
    assert taken[0].tickets == (ticket,)


async def test_what_comes_together_travels_together() -> None:
    """The first request of a turn of the event loop does not send the runner off without the others."""
    batcher = make_batcher()
    taken: list[TicketBatch | None] = []
    thread = threading.Thread(target=lambda: taken.append(batcher.next()))
    thread.start()
    await until(lambda: batcher._changed._waiters)
    tickets = [make_ticket(1), make_ticket(2)]
    for ticket in tickets:
        batcher.put([ticket])
        assert batcher._changed._waiters  # nothing has woken the runner
    await asyncio.to_thread(thread.join, 60)
    assert taken[0].tickets == tuple(tickets)


@given(
    tickets=st.lists(st.tuples(st.integers(1, 20), st.integers(0, 4)), max_size=30),
    live=st.lists(st.integers(0, 6), max_size=40),
)
async def test_drafts_leave_as_there_is_room(tickets: list[tuple[int, int]], live: list[int]) -> None:
    """Rows and drafts in their own order, drafts never beside more rows than allowed; a large one goes alone."""
    batcher = make_batcher(decode_rows=3)
    put = [make_draft(tokens, beams=beams) if beams else make_ticket(tokens) for tokens, beams in tickets]
    for ticket in put:
        batcher.put([ticket])
    batcher.close()
    taken: list[Ticket] = []
    for live_rows in [*live, *([0] * len(put))]:
        batch = batcher.next(live_rows=live_rows)
        if batch is None:
            break
        rows = live_rows + sum(ticket.num_beams for ticket in batch.drafts)
        assert not batch.drafts or rows <= 3 or (live_rows == 0 and len(batch.drafts) == 1)
        taken += [*batch.tickets, *batch.drafts]
    assert batcher.next() is None
    for kind in (True, False):
        assert [one for one in taken if bool(one.decoding) is kind] == [
            one for one in put if bool(one.decoding) is kind
        ]
    assert batcher.queued_tokens == 0


async def test_neither_kind_holds_up_the_other() -> None:
    batcher = make_batcher(tokens=10, decode_rows=2)
    drafts, rows = [make_draft(3) for _ in range(4)], [make_ticket(8) for _ in range(2)]
    batcher.put([*drafts, *rows])
    first, second = batcher.next(), batcher.next(live_rows=2)
    assert (first.drafts, first.tickets) == (tuple(drafts[:2]), (rows[0],))
    assert (second.drafts, second.tickets) == ((), (rows[1],))


async def test_a_long_input_joins_texts_that_are_being_written() -> None:
    batcher = make_batcher(tokens=10, decode_rows=4)
    drafts = [make_draft(12), make_draft(3)]
    batcher.put(drafts)
    assert batcher.next(live_rows=1).drafts == (drafts[0],)
    assert batcher.next(live_rows=2).drafts == (drafts[1],)


async def test_next_does_not_wait_while_texts_are_written() -> None:
    """Their next step is due, whether or not anything waits, also when the queue is closed."""
    batcher = make_batcher()
    assert batcher.next(live_rows=1).tickets == ()
    batcher.close()
    assert batcher.next(live_rows=1).drafts == ()
    assert batcher.next() is None


async def test_a_draft_costs_what_it_may_write() -> None:
    batcher = make_batcher()
    batcher.put([make_draft(7, beams=3, new_tokens=10)])
    assert batcher.queued_tokens == 7 + 3 * 10


@pytest.mark.parametrize("asks", ["next", "put"])
async def test_a_late_draft_is_refused_while_it_waits_for_room(asks: str) -> None:
    """Its caller does not wait until running texts end; drafts that have time continue to wait."""
    batcher = make_batcher(decode_rows=1)
    late, other = make_draft(3, deadline=0.0), make_draft(3)
    batcher.put([other, late])
    if asks == "next":
        assert batcher.next(live_rows=1).drafts == ()
    else:
        batcher.put([make_ticket(1)])
    await asyncio.sleep(0)
    with pytest.raises(DeadlinePassed, match="the deadline passed while the input waited"):
        late.future.result()
    assert batcher.next(live_rows=0).drafts == (other,)


async def test_those_who_gave_up_take_no_room() -> None:
    batcher = make_batcher(queue=40)
    batcher.put([make_ticket(5)])
    gone = asyncio.ensure_future(batcher.compute([make_row(10), make_row(15)], Terms(deadline=1e12)))
    await asyncio.sleep(0)
    assert batcher.queued_tokens == 30
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert batcher.queued_tokens == 5
    assert len(batcher._rows._deadlines) == 0


async def test_rows_that_wait_for_the_next_batch_may_be_cancelled() -> None:
    """The others of their request are computed already; nothing of it is left."""
    batcher, results = make_batcher(rows=2), Results(5)
    rows = [make_row(3)] * 5
    batcher.put([Ticket(rows, price_tokens(rows, drafted=False), results)])
    assert len(batcher.next().rows) == 2
    assert batcher.queued_tokens == 9
    results.future.cancel()
    assert batcher.next(wait=False).rows == []
    assert batcher.queued_tokens == 0


async def test_rows_that_are_late_wait_for_those_in_time() -> None:
    """The request ends with an error for the late ones, and not before its first batch has ended."""
    batcher, results = make_batcher(rows=2), Results(3)
    rows = [make_row(3)] * 3
    ticket = Ticket(rows, price_tokens(rows, drafted=False), results, deadline=time.monotonic() + 60)
    batcher.put([ticket])
    batch = batcher.next()
    pass_deadline(batcher, ticket)
    assert batcher.next(wait=False).rows == []
    await asyncio.sleep(0)
    assert not results.future.done()
    batch.resolve([_output(), _output()])
    with pytest.raises(DeadlinePassed, match="input 2: the deadline passed while the input waited") as caught:
        await results.future
    assert len(caught.value.details) == 1


def pass_deadline(batcher: Batcher, ticket: Ticket) -> None:
    """Lets the deadline of a waiting ticket have passed."""
    ticket.deadline = 0.0
    batcher._rows._deadlines.remove(ticket)
    batcher._rows._deadlines.put(ticket, 0.0)


async def test_those_who_are_late_take_no_room() -> None:
    """They fail as soon as anybody looks at the queue, also where they stand behind others that wait for long."""
    batcher = make_batcher(queue=40)
    late, draft = make_ticket(20, deadline=0.0), make_draft(5)
    batcher.put([make_ticket(5), late])
    batcher.put([draft])
    await asyncio.sleep(0)
    assert isinstance(late.future.exception(), DeadlinePassed)
    assert batcher.queued_tokens == 15


async def test_waiting_tokens_are_counted_for_each_tenant() -> None:
    batcher = make_batcher(tokens=8, queue=400)
    late = make_ticket(9, deadline=time.monotonic() + 60, tenant="b")
    for ticket in (make_ticket(5), make_ticket(3), late, make_draft(7, tenant="a")):
        batcher.put([ticket])
    assert batcher.queued_tokens_by_tenant() == {"default": 8, "a": 12, "b": 9}
    batcher.next()
    assert batcher.queued_tokens_by_tenant() == {"default": 3, "b": 9}
    pass_deadline(batcher, late)
    batcher.next()
    assert batcher.queued_tokens_by_tenant() == {}


async def test_tenants_share_batches_by_their_weights() -> None:
    """Rows and drafts alike: of a batch that both want, b with weight 3 gets three quarters."""
    batcher = make_batcher(tokens=80, rows=100, decode_rows=1000)
    for _ in range(60):
        batcher.put([make_ticket(2, tenant="a"), make_draft(2, tenant="a")])
    for _ in range(60):
        batcher.put([make_ticket(2, tenant="b"), make_draft(2, tenant="b")])
    batch = batcher.next()
    for tickets in (batch.tickets, batch.drafts):
        assert Counter(ticket.tenant for ticket in tickets) == {"a": 10, "b": 30}


async def test_written_tokens_are_charged() -> None:
    batcher = make_batcher(tokens=4, decode_rows=1000)
    for _ in range(40):
        batcher.put([make_draft(2, tenant="a"), make_draft(2, tenant="default")])
    batcher.charge({"a": 20, "default": 4})
    begun = Counter(ticket.tenant for _ in range(20) for ticket in batcher.next(live_rows=1).drafts)
    assert begun == {"a": 16, "default": 24}


async def test_a_step_costs_no_more_than_a_batch() -> None:
    """What is being written counts; a text that alone costs more is written alone."""
    batcher = make_batcher(tokens=10, decode_rows=1000)
    drafts = [make_draft(2, beams=4) for _ in range(4)]
    batcher.put(drafts)
    assert batcher.next(live_rows=1, live_cost=7).drafts == ()
    assert batcher.next(live_rows=1, live_cost=6).drafts == tuple(drafts[:1])
    assert batcher.next().drafts == tuple(drafts[1:3])
    wide = make_draft(2, beams=12)
    batcher = make_batcher(tokens=10, decode_rows=1000)
    batcher.put([wide])
    assert batcher.next().drafts == (wide,)


async def test_a_draft_with_many_beams_is_not_passed_over() -> None:
    """Once it is its turn the lane waits for it: so many rows would never be free together by chance."""
    batcher = make_batcher(tokens=100, decode_rows=4)
    wide, narrow = make_draft(2, beams=4, tenant="a"), make_draft(2, tenant="default")
    batcher.put([wide])
    batcher.put([narrow])
    assert batcher.next(live_rows=1).drafts == ()
    assert batcher.next(live_rows=0).drafts == (wide,)
    assert batcher.next(live_rows=3).drafts == (narrow,)


async def test_a_lane_that_fails_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the queue of texts fails, rows are served and running texts continue; new texts wait."""
    batcher = make_batcher()
    row, draft = make_ticket(2), make_draft(2)
    batcher.put([row])
    batcher.put([draft])
    with monkeypatch.context() as patch:
        patch.setattr(batcher._drafts, "take", lambda _: 1 / 0)
        batch, writing = batcher.next(), batcher.next(live_rows=1)
        assert (batch.tickets, batch.drafts, writing.tickets, writing.drafts) == ((row,), (), (), ())
        with pytest.raises(ZeroDivisionError):
            batcher.next()
    assert batcher.next().drafts == (draft,)


async def test_priority_orders_one_tenants_rows() -> None:
    """Higher first, and of equal ones the first that came; another tenant's share is its own."""
    batcher = make_batcher(tokens=2, rows=1)
    low, plain, high = [make_ticket(2, priority=priority) for priority in (-1, 0, 5)]
    later, other = make_ticket(2), make_ticket(2, tenant="a")
    for ticket in (low, plain, high, later, other):
        batcher.put([ticket])
    assert [batch.tickets[0] for batch in drain(batcher)] == [high, other, plain, later, low]


async def test_a_low_priority_has_its_turn_in_the_end() -> None:
    batcher, now = make_batcher(rows=1), time.monotonic()
    old, new = make_ticket(2, queued_at=now - 121), make_ticket(2, queued_at=now, priority=2)
    newer = make_ticket(2, queued_at=now - 119)
    batcher.put([newer, new, old])
    assert [batch.tickets[0] for batch in drain(batcher)] == [old, new, newer]


async def test_an_error_names_the_inputs_it_belongs_to() -> None:
    """A request learns of all of its rows that failed, once every row has an end."""
    batcher = make_batcher(rows=3)
    answer = asyncio.ensure_future(batcher.compute([Row(Encoded((0,), (0,)))] * 3))
    await asyncio.sleep(0)
    batch = batcher.next()
    batch.resolve([DeadlinePassed("too late"), _output(), DeadlinePassed("much too late")])
    with pytest.raises(DeadlinePassed, match="input 0: too late") as caught:
        await answer
    assert caught.value.details == ["input 0: too late", "input 2: much too late"]


def _output() -> object:
    import torch
    from peltier_adapters.batch.row import RowOutput

    return RowOutput(torch.zeros(2))


@pytest.mark.parametrize(
    ("inputs", "message", "details"),
    [
        (None, "input 1: bad", ["input 1: bad", "input 3: bad"]),
        ([0, 0, 1, 1, 2], "input 0: bad", ["input 0: bad", "input 1: bad"]),
        ([0, 1, 1, 1, 1], "input 1: bad", ["input 1: bad"]),
        ([0, 0, 0, 0, 0], "bad", []),
    ],
)
async def test_an_error_names_the_input(inputs: Sequence[int] | None, message: str, details: list[str]) -> None:
    results: Results[str] = Results(5, inputs)
    results.put(0, ["a", InferenceFailed("bad"), "b", InferenceFailed("bad"), "c"])
    with pytest.raises(InferenceFailed) as caught:
        await results.future
    assert caught.value.message == message
    assert list(caught.value.details) == details
