"""The queue of rows and its batches, bounded in tokens and shared fairly between tenants."""

import asyncio
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, TypeVar

from peltier_adapters.batch.row import Row
from peltier_adapters.generation import Draft
from peltier_adapters.spec.decoding import Decoding
from peltier_client.errors import DeadlinePassed, Draining, TooLarge

from peltier_server import retry_hints
from peltier_server.fairness.scheduler import WeightOf
from peltier_server.fairness.shared_bound import ShareRule, max_alone
from peltier_server.queue.batch import BatchBounds, BatchLimit, BatchRoom, TicketBatch
from peltier_server.queue.fair_queue import FairQueue
from peltier_server.queue.prices import Price, Prices, price_tokens
from peltier_server.queue.ticket import Reduce, Results, RowsOutcome, Terms, Ticket, TokenListener, settle
from peltier_server.quotas.enforcer import background_of

logger = logging.getLogger(__name__)

T = TypeVar("T")

_ANY_TIME = Terms()


def _equal_weight(_: str) -> float:
    return 1.0


class Batcher:
    """The queue between the event loop, which puts rows, and the runner's thread, which takes batches. Thread-safe.

    Neighbouring rows of a request with the same adapter wait as one ticket. While another tenant waits they have their
    turns one by one. A ticket is split where a batch is full. A batch stays within `bounds`, by the estimated cost of
    its rows (`Prices`, `BatchLimit`); a row that costs more is computed alone. Drafts wait in a queue of their own
    until they fit into `max_decode_rows`, so that rows and drafts do not block each other. In each queue tenants take
    turns by their weight (`Scheduler`), and the tickets of a tenant leave in the order of their ranks. A draft is
    charged for its input when it leaves the queue, and then for each generated token.

    Long rows, and those that nobody waits for, have a third queue and a thread with a lower priority
    (`start_background`).

    At most `max_queue_tokens` wait, and of one tenant at most three times the rest, so that a tenant that floods the
    queue leaves room for others. Tokens are counted, not their estimated cost, so that measured times have no
    influence. Cancelled tickets leave at once. Tickets whose deadline passes while they wait fail with
    `DeadlinePassed`.
    """

    def __init__(
        self,
        bounds: BatchBounds,
        *,
        max_queue_tokens: int,
        max_decode_rows: int,
        weight_of: WeightOf = _equal_weight,
        prices: Prices | None = None,
    ) -> None:
        """Without `prices` a row costs its tokens."""
        self._prices = prices
        self._bounds = bounds
        self._limit = BatchLimit(bounds)
        self._max_decode_rows = max_decode_rows
        self._share_rule = ShareRule(max_queue_tokens, "tokens", "wait")
        self._rows, self._drafts, self._background = (FairQueue(bounds.max_tokens, weight_of) for _ in range(3))
        # Starts a thread that computes `next_background` until there is none. The owner of the threads sets it.
        self.start_background: Callable[[], None] = _no_background
        self._has_background = False
        self._num_in_background = 0
        # The tenants of the batch that the runner computes.
        self._running: frozenset[str] = frozenset()
        self._num_running = 0
        self._closed = False
        self._waking = False
        self._changed = threading.Condition()

    @property
    def queued_tokens(self) -> int:
        """Tokens of all waiting tickets, including those that drafts may generate."""
        return sum(queue.tokens for queue in self._queues)

    @property
    def queued_rows(self) -> int:
        """Rows of all waiting tickets."""
        return sum(len(queue) for queue in self._queues)

    @property
    def live_rows(self) -> int:
        """Rows of the waiting tickets for whose answers somebody waits."""
        return sum(queue.live_rows for queue in self._queues)

    @property
    def running_rows(self) -> int:
        """Rows of the batches that are computed now, and texts and beams that are generated."""
        return self._num_running + self._num_in_background

    def queued_tokens_by_tenant(self) -> dict[str, int]:
        """The same by tenant, for tenants with waiting tickets."""
        with self._changed:
            return dict(sum((queue.tokens_by_tenant for queue in self._queues), Counter()))

    async def compute(
        self,
        rows: Sequence[Row],
        terms: Terms = _ANY_TIME,
        *,
        inputs: Sequence[int] | None = None,
        record_gates: bool = False,
        reduce: Reduce | None = None,
    ) -> RowsOutcome[Any]:
        """The outcome of one request's rows; the caller holds the leases of their adapters. `inputs` has the number of
        each row's input, if inputs have several rows. Outputs are `RowOutput`s, or what `reduce` makes of them.

        Raises the first error, but only after every row has ended, because the leases must outlive all rows.
        """
        results: Results[Any] = Results(len(rows), inputs)
        tickets, start = list[Ticket](), 0
        for run in _runs(rows, self._bounds.max_short_tokens):
            given = {"results": results, "start": start, "record_gates": record_gates, "reduce": reduce}
            tickets.append(_ticket(run, self._price(run), terms, **given))
            start += len(run)
        return await self._outcome(results, tickets)

    async def write(
        self,
        rows: Sequence[Row],
        decodings: Sequence[Decoding],
        terms: Terms = _ANY_TIME,
        *,
        listener: TokenListener | None = None,
    ) -> RowsOutcome[Draft]:
        """`compute` for texts: one draft per row. `listener` gets the new tokens of a single draft."""
        results, prices = Results[Draft](len(rows)), [self._price([row], drafted=True) for row in rows]
        tickets = [
            _ticket([row], price, terms, results=results, start=place, decoding=own, listener=listener)
            for place, (row, price, own) in enumerate(zip(rows, prices, decodings, strict=True))
        ]
        return await self._outcome(results, tickets)

    def put(self, tickets: Sequence[Ticket]) -> None:
        """Queues all tickets of one request, which have one tenant and the running event loop; if it raises, none.

        Wakes the runner once for all requests of the same iteration of the loop, so that they share a batch.
        """
        with self._changed:
            # First, because late tickets free room.
            late = self._take_late()
            try:
                self._admit(tickets)
                queues = [self._queue_of(ticket) for ticket in tickets]
                if self._background in queues and not self._has_background:
                    self.start_background()
                    self._has_background = True
                for ticket, queue in zip(tickets, queues, strict=True):
                    queue.put(ticket)
            finally:
                _refuse(late)
            if not self._waking:
                self._waking = True
                tickets[0].future.get_loop().call_soon(self._wake)

    def next(self, *, live_rows: int = 0, live_cost: int = 0, wait: bool = True) -> TicketBatch | None:
        """Takes as many rows as fit, and as many drafts as fit beside the `live_rows` in decoding, whose steps cost
        `live_cost`.

        With `live_rows`, or without `wait`, it returns at once, possibly an empty batch. Otherwise it blocks until
        something waits, and returns None once the queue is closed and empty.
        """
        while True:
            with self._changed:
                # The former batch has ended.
                self._limit.saw(self._running)
                self._num_running = live_rows
                self._changed.wait_for(lambda: live_rows or not wait or self._waits or self._closed)
                late = self._take_late()
                try:
                    batch = self._take(live_rows, live_cost)
                finally:
                    _refuse(late)
                finished = self._closed and not self._waits
            if batch.tickets or batch.drafts or live_rows:
                return batch
            if finished:
                return None
            if not wait:
                return batch

    def next_background(self) -> TicketBatch | None:
        """Takes as many rows for the background as fit. If none waits, it returns None, and the next one starts a
        thread again."""
        with self._changed:
            late = self._take_late()
            try:
                taken = self._take_background()
            finally:
                _refuse(late)
            self._num_in_background = sum(len(ticket.rows) for ticket in taken)
            self._has_background = bool(taken)
        return TicketBatch(taken) if taken else None

    def charge(self, cost_by_tenant: Mapping[str, int]) -> None:
        """Charges tenants for the tokens that their drafts have generated."""
        with self._changed:
            self._limit.saw(cost_by_tenant)
            self._drafts.charge(cost_by_tenant)

    def learn(self, tickets: Sequence[Ticket], seconds: float) -> None:
        """Learns prices from the time of a batch of `tickets`; the runner calls it."""
        if self._prices is not None:
            self._prices.observe([(ticket.price, ticket.row.resident) for ticket in tickets], seconds)

    def learn_step(self, tickets: Sequence[Ticket], seconds: float, *, joined: Sequence[Ticket] = ()) -> None:
        """Learns prices from the time of one step of these drafts, and of the first pass of those that have `joined`;
        the runner calls it."""
        if self._prices is not None:
            beams = [(ticket.price, ticket.row.resident) for ticket in tickets for _ in range(ticket.num_beams)]
            first = [(ticket.price, ticket.row.resident) for ticket in joined]
            self._prices.observe_step(beams, seconds, joined=first)

    def close(self) -> None:
        """Refuses new tickets; waiting ones are still computed."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _wake(self) -> None:
        with self._changed:
            self._waking = False
            self._changed.notify()

    @property
    def _queues(self) -> tuple[FairQueue, FairQueue, FairQueue]:
        return self._rows, self._drafts, self._background

    @property
    def _waits(self) -> bool:
        return bool(self._rows or self._drafts)

    def _price(self, rows: Sequence[Row], *, drafted: bool = False) -> Price:
        price = price_tokens if self._prices is None else self._prices.price
        return price(rows, drafted=drafted)

    def _queue_of(self, ticket: Ticket) -> FairQueue:
        if ticket.decoding is not None:
            return self._drafts
        max_short_tokens = self._bounds.max_short_tokens
        in_background = ticket.background and max_short_tokens < math.inf
        return self._background if in_background or _is_long(ticket.row, max_short_tokens) else self._rows

    def _admit(self, tickets: Sequence[Ticket]) -> None:
        if self._closed:
            raise Draining("the server is stopping and accepts no new requests", retry_after=retry_hints.SOON)
        tenant = tickets[0].tenant
        held = sum(queue.tokens_by_tenant[tenant] for queue in self._queues)
        tokens, limit = sum(ticket.tokens for ticket in tickets), self._share_rule.limit
        if tokens > (max_tokens := max_alone(limit)):
            raise TooLarge(
                f"the request costs {tokens} tokens; at most {max_tokens} of one tenant may wait at a time, "
                f"so that others find room among {limit}"
            )
        self._share_rule.check(tenant, tokens, held=held, taken=self.queued_tokens)

    def _take_late(self) -> list[Ticket]:
        now = time.monotonic()
        return [ticket for queue in self._queues for ticket in queue.take_late(now)]

    def _take(self, live_rows: int, live_cost: int) -> TicketBatch:
        rows: list[Ticket] = []
        drafts: list[Ticket] = []
        max_cost = self._max_cost()
        try:
            tokens = self._bounds.max_tokens
            rows = self._rows.take(BatchRoom(max_cost, self._bounds.max_rows, tokens))
            free_rows, steps = self._max_decode_rows - live_rows, max_cost - live_cost
            drafts = self._drafts.take(BatchRoom(max_cost, free_rows, tokens, steps, alone=not live_rows))
        except Exception:
            # Rows that have left the queue and texts in decoding must be computed, because their callers wait for them.
            if not (rows or live_rows):
                raise
            logger.exception("the queue failed after rows of %d requests had left it", len(rows))
        self._running = frozenset(ticket.tenant for ticket in (*rows, *drafts))
        self._num_running += sum(len(ticket.rows) for ticket in rows) + sum(ticket.num_beams for ticket in drafts)
        return TicketBatch(rows, drafts)

    def _take_background(self) -> list[Ticket]:
        # Nobody else waits for this batch, so it is bounded as if its tenant were alone.
        bounds = self._bounds
        return self._background.take(BatchRoom(bounds.max_tokens, bounds.max_rows, bounds.max_tokens))

    def _max_cost(self) -> int:
        """The maximum cost of the next batch."""
        for queue in (self._rows, self._drafts):
            # Two show whether a tenant is alone.
            self._limit.saw(islice(queue.tokens_by_tenant, 2))
        if self._prices is None:
            return self._bounds.max_tokens
        return self._limit.cost(self._prices.seconds_per_token, self._prices.factors.batch)

    async def _outcome(self, results: Results[T], tickets: Sequence[Ticket]) -> RowsOutcome[T]:
        self.put(tickets)
        try:
            return await results.future
        except asyncio.CancelledError:
            self._drop(tickets)
            raise

    def _drop(self, tickets: Sequence[Ticket]) -> None:
        with self._changed:
            for ticket in tickets:
                self._queue_of(ticket).drop(ticket)


def _runs(rows: Sequence[Row], max_short_tokens: float) -> Iterator[Sequence[Row]]:
    """Neighbouring rows with the same adapter and label strings, either all long or none of them."""
    kinds = groupby(rows, lambda row: (id(row.resident), row.bare, id(row.tree), _is_long(row, max_short_tokens)))
    return (list(run) for _, run in kinds)


def _is_long(row: Row, max_short_tokens: float) -> bool:
    return row.num_inputs > max_short_tokens


def _no_background() -> None:
    raise RuntimeError("no thread computes in the background")


def _ticket(rows: Sequence[Row], price: Price, terms: Terms, **given: Any) -> Ticket:
    tenant, deadline, priority, trace, background = terms
    payer = background_of(tenant) if background else tenant
    given |= {"deadline": deadline, "priority": priority, "trace": trace, "background": background}
    return Ticket(rows, price, tenant=payer, **given)


def _refuse(late: Sequence[Ticket]) -> None:
    settle(late, [DeadlinePassed("the deadline passed while the input waited") for _ in late])
