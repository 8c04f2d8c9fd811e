"""Rows that wait, and the batches that leave: bounded in tokens, first come first served."""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from peltier_adapters.batch import Row, RowOutput
from peltier_client.errors import DeadlinePassed, Draining, PeltierError, QueueFull, TooLarge

_RETRY_AFTER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row's output, how long it waited and was computed, and in what company."""

    output: RowOutput
    queue_seconds: float
    compute_seconds: float
    batch_rows: int
    batch_adapters: int


@dataclass(frozen=True, eq=False, slots=True)
class Ticket:
    """One row that waits for its outcome. Moments are seconds of `time.monotonic`."""

    row: Row
    future: asyncio.Future[Outcome]
    deadline: float
    record_gates: bool = False
    queued_at: float = field(default_factory=time.monotonic)

    @property
    def tokens(self) -> int:
        """What the row costs, exactly."""
        return len(self.row.encoded)


class Batch:
    """Tickets that are computed together. May be empty, when the runner was only woken."""

    def __init__(self, tickets: Sequence[Ticket]) -> None:
        self.tickets = tuple(tickets)
        self.started_at = time.monotonic()

    @property
    def rows(self) -> list[Row]:
        """In the order of the tickets."""
        return [ticket.row for ticket in self.tickets]

    @property
    def tokens(self) -> int:
        """Over all rows."""
        return sum(ticket.tokens for ticket in self.tickets)

    @property
    def num_adapters(self) -> int:
        """Distinct ones among the rows."""
        return len({ticket.row.resident for ticket in self.tickets} - {None})

    @property
    def record_gates(self) -> bool:
        """Some caller asked for gates."""
        return any(ticket.record_gates for ticket in self.tickets)

    def resolve(self, outputs: Sequence[RowOutput | PeltierError]) -> None:
        """Hands every caller its own output or error, in one call to their event loop for the whole batch."""
        if not self.tickets:
            return
        compute, num_adapters = time.monotonic() - self.started_at, self.num_adapters
        results = [
            output
            if isinstance(output, PeltierError)
            else Outcome(output, self.started_at - ticket.queued_at, compute, len(self.tickets), num_adapters)
            for ticket, output in zip(self.tickets, outputs, strict=True)
        ]
        _hand_over(self.tickets, results)


class Batcher:
    """The queue between the event loop, which puts, and the runner's thread, which takes. Thread-safe.

    A batch has at most `max_batch_tokens` and `max_batch_rows`; a row that alone has more tokens travels alone. Rows
    leave in the order they came. Cancelled rows are dropped, rows past their deadline fail with `DeadlinePassed`.
    """

    def __init__(self, *, max_batch_tokens: int, max_batch_rows: int, max_queue_tokens: int) -> None:
        self._max_batch_tokens = max_batch_tokens
        self._max_batch_rows = max_batch_rows
        self._max_queue_tokens = max_queue_tokens
        self._waiting: deque[Ticket] = deque()
        self._queued_tokens = 0
        self._woken = False
        self._closed = False
        self._changed = threading.Condition()

    @property
    def queued_tokens(self) -> int:
        """Tokens of all rows that wait."""
        return self._queued_tokens

    async def compute(
        self, rows: Sequence[Row], *, deadline: float = math.inf, record_gates: bool = False
    ) -> list[Outcome]:
        """The outcomes of one request's rows, in order; the caller holds the leases of their adapters.

        Raises the first error, and only once every row has come to an end, because the leases must outlive them all.
        """
        loop = asyncio.get_running_loop()
        tickets = [Ticket(row, loop.create_future(), deadline, record_gates) for row in rows]
        self.put(tickets)
        return _all_or_error(await asyncio.gather(*(ticket.future for ticket in tickets), return_exceptions=True))

    def put(self, tickets: Sequence[Ticket]) -> None:
        """Queues all tickets of one request, or raises and queues none."""
        tokens = sum(ticket.tokens for ticket in tickets)
        with self._changed:
            self._admit(tokens)
            self._waiting.extend(tickets)
            self._queued_tokens += tokens
            self._changed.notify()

    def next(self) -> Batch | None:
        """Blocks until rows wait, and takes as many as fit; None once closed and empty. Empty after `wake`."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._woken or self._closed)
                woken, self._woken = self._woken, False
                taken, late = self._take(time.monotonic())
                finished = self._closed and not self._waiting
            if late:
                _hand_over(late, [DeadlinePassed("the deadline passed while the input waited") for _ in late])
            if taken or woken:
                return Batch(taken)
            if finished:
                return None

    def wake(self) -> None:
        """Makes `next` return even if no row waits."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def close(self) -> None:
        """Refuses new rows; those that wait are still taken."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _admit(self, tokens: int) -> None:
        if self._closed:
            raise Draining("the server is stopping and takes nothing new", retry_after=_RETRY_AFTER_SECONDS)
        if tokens > self._max_queue_tokens:
            # Waiting would not help, so this is not QueueFull.
            raise TooLarge(f"the inputs have {tokens} tokens; at most {self._max_queue_tokens} may wait at a time")
        if self._queued_tokens + tokens > self._max_queue_tokens:
            raise QueueFull(
                f"{self._queued_tokens} tokens wait of at most {self._max_queue_tokens}; {tokens} more do not fit",
                retry_after=_RETRY_AFTER_SECONDS,
            )

    def _take(self, now: float) -> tuple[list[Ticket], list[Ticket]]:
        taken: list[Ticket] = []
        late: list[Ticket] = []
        tokens = 0
        while self._waiting:
            ticket = self._waiting[0]
            if not ticket.future.cancelled():
                if ticket.deadline <= now:
                    late.append(ticket)
                elif taken and (tokens + ticket.tokens > self._max_batch_tokens or len(taken) == self._max_batch_rows):
                    break
                else:
                    taken.append(ticket)
                    tokens += ticket.tokens
            self._waiting.popleft()
            self._queued_tokens -= ticket.tokens
        return taken, late


def _all_or_error(results: Sequence[Outcome | BaseException]) -> list[Outcome]:
    errors = [(number, result) for number, result in enumerate(results) if isinstance(result, BaseException)]
    if not errors:
        return [result for result in results if isinstance(result, Outcome)]
    number, first = errors[0]
    if len(results) > 1 and isinstance(first, PeltierError):
        raise type(first)(f"input {number}: {first}", [f"input {place}: {error}" for place, error in errors])
    raise first


def _hand_over(tickets: Sequence[Ticket], results: Sequence[Outcome | PeltierError]) -> None:
    tickets[0].future.get_loop().call_soon_threadsafe(_settle, tickets, results)


def _settle(tickets: Sequence[Ticket], results: Sequence[Outcome | PeltierError]) -> None:
    for ticket, result in zip(tickets, results, strict=True):
        if ticket.future.done():
            continue
        if isinstance(result, PeltierError):
            ticket.future.set_exception(result)
        else:
            ticket.future.set_result(result)
