"""The queue's promises, for any sequence of rows."""

import asyncio
import math
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peltier_adapters.batch import Row
from peltier_backbone.packing import Encoded
from peltier_client.errors import DeadlinePassed, Draining, QueueFull, TooLarge
from peltier_server.batcher import Batch, Batcher, Ticket

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=40)


def make_ticket(tokens: int, deadline: float = math.inf) -> Ticket:
    row = Row(Encoded((0,) * tokens, (0,) * tokens))
    return Ticket(row, asyncio.get_running_loop().create_future(), deadline)


def make_batcher(tokens: int = 16, rows: int = 4, queue: int = 10_000) -> Batcher:
    return Batcher(max_batch_tokens=tokens, max_batch_rows=rows, max_queue_tokens=queue)


def drain(batcher: Batcher) -> list[Batch]:
    batcher.close()
    return list(iter(batcher.next, None))


@given(lengths=LENGTHS, tokens=st.integers(1, 40), rows=st.integers(1, 8))
@settings(max_examples=150, deadline=None)
async def test_no_batch_exceeds_its_budget(lengths: list[int], tokens: int, rows: int) -> None:
    """Only a row that alone is too long makes a batch too long, and then it is alone."""
    batcher = make_batcher(tokens, rows)
    batcher.put([make_ticket(length) for length in lengths])
    for batch in drain(batcher):
        assert 1 <= len(batch.tickets) <= rows
        assert batch.tokens <= tokens or len(batch.tickets) == 1


@given(requests=st.lists(LENGTHS, max_size=6), tokens=st.integers(1, 40))
@settings(max_examples=150, deadline=None)
async def test_nothing_is_lost_and_order_is_kept(requests: list[list[int]], tokens: int) -> None:
    """Rows leave first come first served, each once, and the count of tokens returns to zero."""
    batcher = make_batcher(tokens)
    tickets = [[make_ticket(length) for length in lengths] for lengths in requests]
    for request in tickets:
        batcher.put(request)
    taken = [ticket for batch in drain(batcher) for ticket in batch.tickets]
    assert taken == [ticket for request in tickets for ticket in request]
    assert batcher.queued_tokens == 0


@given(lengths=LENGTHS, cancelled=st.sets(st.integers(0, 39)), late=st.sets(st.integers(0, 39)))
@settings(max_examples=150, deadline=None)
async def test_cancelled_and_late_rows_are_not_computed(
    lengths: list[int], cancelled: set[int], late: set[int]
) -> None:
    """A cancelled row vanishes, one past its deadline fails with `DeadlinePassed`, all others are computed."""
    batcher = make_batcher()
    tickets = [make_ticket(length, 0.0 if place in late else math.inf) for place, length in enumerate(lengths)]
    batcher.put(tickets)
    for place in cancelled & set(range(len(tickets))):
        tickets[place].future.cancel()
    taken = [ticket for batch in drain(batcher) for ticket in batch.tickets]
    await asyncio.sleep(0)
    assert taken == [one for place, one in enumerate(tickets) if place not in cancelled | late]
    failed = [one for place, one in enumerate(tickets) if place in late - cancelled]
    assert all(isinstance(one.future.exception(), DeadlinePassed) for one in failed)
    assert batcher.queued_tokens == 0


async def test_a_full_queue_takes_nothing_of_a_request() -> None:
    """The caller learns when to come back, and the rows that wait are untouched."""
    batcher = make_batcher(queue=10)
    batcher.put([make_ticket(6)])
    with pytest.raises(QueueFull, match="6 tokens wait of at most 10; 5 more do not fit") as caught:
        batcher.put([make_ticket(1), make_ticket(4)])
    assert caught.value.retry_after == 1
    assert batcher.queued_tokens == 6


async def test_what_can_never_fit_is_too_large() -> None:
    """Coming back later would not help, so it is not told to."""
    with pytest.raises(TooLarge, match="the inputs have 11 tokens; at most 10 may wait"):
        make_batcher(queue=10).put([make_ticket(11)])


async def test_a_closed_batcher_serves_what_waits_and_takes_nothing() -> None:
    """Draining finishes what was accepted."""
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
    taken: list[Batch | None] = []
    thread = threading.Thread(target=lambda: taken.append(batcher.next()))
    thread.start()
    await asyncio.to_thread(thread.join, 0.05)
    assert taken == []
    ticket = make_ticket(1)
    batcher.put([ticket])
    await asyncio.to_thread(thread.join, 5)
    assert taken[0].tickets == (ticket,)


async def test_waking_gives_an_empty_batch() -> None:
    """The runner can be asked to look up although no row waits."""
    batcher = make_batcher()
    batcher.wake()
    assert batcher.next().tickets == ()


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
    from peltier_adapters.batch import RowOutput

    return RowOutput(torch.zeros(2))
