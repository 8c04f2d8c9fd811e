"""The work of one iteration of the runner, and its maximum size. The maximum cost is lower while several tenants are
present, so that none waits long for another."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Resident

from peltier_server.queue.prices import SharedBlocks
from peltier_server.queue.ticket import RowsOutcome, Ticket, settle
from peltier_server.tracing import BatchTrace

# Callers who send one request at a time pause between them. So a tenant stays present this long after its last row.
PRESENT_SECONDS = 10.0
# The fixed cost of a batch is about as much. A smaller batch has more overhead than useful work.
MIN_SHARED_COST = 32


@dataclass(frozen=True)
class BatchBounds:
    """Maximum rows of a batch, its maximum cost in tokens of the plain backbone, and its maximum expected seconds while
    several tenants are present. Rows with more tokens than `max_short_tokens` are computed in the background; if it is
    infinite, none are."""

    max_rows: int
    max_tokens: int
    max_shared_seconds: float = math.inf
    max_short_tokens: float = math.inf


class BatchLimit:
    """Computes the maximum cost of a batch. A tenant is present while it has waiting or running rows, and some seconds
    longer. Long texts in the background do not count, because they have a thread of their own. The caller holds the
    lock of the queue."""

    def __init__(self, bounds: BatchBounds) -> None:
        self._bounds = bounds
        self._latest = ""
        self._seen_at = self._other_seen_at = -math.inf

    def saw(self, tenants: Iterable[str]) -> None:
        """These tenants have waiting or running rows now."""
        for tenant in tenants:
            if tenant != self._latest:
                self._other_seen_at, self._latest = self._seen_at, tenant
            self._seen_at = time.monotonic()

    def cost(self, seconds_per_token: float, fixed_cost: float = 0.0) -> int:
        """The maximum cost of a batch's rows in tokens, for the expected time of a token, which is infinite if nothing
        is known, and the cost of a batch without rows."""
        max_tokens, max_seconds = self._bounds.max_tokens, self._bounds.max_shared_seconds
        is_shared = time.monotonic() - self._other_seen_at <= PRESENT_SECONDS
        if not is_shared or (max_tokens + fixed_cost) * seconds_per_token <= max_seconds:
            return max_tokens
        fitting = max_seconds / seconds_per_token - fixed_cost
        return min(max_tokens, max(int(fitting), MIN_SHARED_COST))


@dataclass
class BatchRoom:
    """The room of one pass: rows, their tokens, and their cost in tokens of the plain backbone.

    An adapter's weights are charged once, with its first ticket. The blocks that rows of one text share are charged
    with the first of these rows. The others may cost less than their tokens, which are bounded because of the memory.

    The first row may cost more, and may have more beams if it is `alone`, with nothing else in progress. The steps of
    the taken texts cost at most `steps` together.
    """

    cost: int
    rows: int
    tokens: float = math.inf
    steps: float = math.inf
    alone: bool = True
    first: bool = True
    adapters: set[Resident | None] = field(default_factory=set)
    shared: SharedBlocks = field(default_factory=SharedBlocks)

    def weights_cost(self, ticket: Ticket) -> int:
        """The cost of the weights of `ticket`'s adapter in this pass."""
        return 0 if ticket.row.resident in self.adapters else ticket.price.weights

    def step_cost(self, ticket: Ticket) -> int:
        """The cost that `ticket` adds to each step of the taken texts."""
        return ticket.step_cost + (0 if ticket.row.resident in self.adapters else ticket.price.step_weights)

    def pass_cost(self, ticket: Ticket) -> int:
        """The cost of the next row of `ticket` in this pass, without the weights of its adapter."""
        return ticket.price.row(ticket.num_served, self._num_shared(ticket, ticket.num_served))

    def admits(self, ticket: Ticket, max_rows: int) -> int:
        """How many of the next `max_rows` rows of `ticket` fit; takes their room, and notes what they share."""
        number, step_cost = ticket.num_served, self.step_cost(ticket)
        fits = ticket.num_beams <= self.rows and step_cost <= self.steps
        if not ((self.first and self.alone) or fits) or not self._admits_row(ticket, number, self.weights_cost(ticket)):
            return 0
        self.steps -= step_cost
        self.rows -= ticket.num_beams
        num_rows = 1
        while num_rows < max_rows and self.rows and self._admits_row(ticket, number + num_rows, 0):
            self.rows -= 1
            num_rows += 1
        return num_rows

    def _admits_row(self, ticket: Ticket, number: int, weights_cost: int) -> bool:
        price, num_shared = ticket.price, self._num_shared(ticket, number)
        cost, tokens = price.row(number, num_shared) + weights_cost, price.inputs[number] + price.targets
        if not self.first and (cost > self.cost or tokens > self.tokens):
            return False
        self.cost -= cost
        self.tokens -= tokens
        self.first = False
        if num_shared:
            ticket.price = price.sharing(number, num_shared)
        self.shared.add(ticket.rows[number], price.depth)
        return True

    def _num_shared(self, ticket: Ticket, number: int) -> int:
        return self.shared.of(ticket.rows[number], ticket.price.depth)


class TicketBatch:
    """Tickets that are computed together, and drafts that begin to be decoded. Both may be empty."""

    def __init__(self, tickets: Sequence[Ticket], drafts: Sequence[Ticket] = ()) -> None:
        self.tickets = tuple(tickets)
        self.drafts = tuple(drafts)
        self.started_at = time.monotonic()

    @property
    def rows(self) -> list[Row]:
        """The rows of the tickets, in their order."""
        return [row for ticket in self.tickets for row in ticket.rows]

    @property
    def num_rows(self) -> int:
        """The number of all rows."""
        return sum(len(ticket.rows) for ticket in self.tickets)

    @property
    def tokens(self) -> int:
        """Tokens of all rows."""
        return sum(ticket.tokens for ticket in self.tickets)

    @property
    def num_adapters(self) -> int:
        """Distinct adapters of the rows."""
        return len({ticket.row.resident for ticket in self.tickets} - {None})

    @property
    def record_gates(self) -> bool:
        """Whether a caller asked for gates."""
        return any(ticket.record_gates for ticket in self.tickets)

    def trace(self) -> BatchTrace | None:
        """A span of the batch, from now on, if one of its requests is traced."""
        traces = [own for ticket in self.tickets if (own := ticket.trace) is not None and own.is_recording]
        if not traces:
            return None
        sizes = {"rows": self.num_rows, "tokens": self.tokens, "adapters": self.num_adapters}
        return BatchTrace(traces, {f"peltier.batch.{name}": size for name, size in sizes.items()})

    def resolve(self, outputs: Sequence[Any], trace: BatchTrace | None = None) -> None:
        """Gives each caller the outputs of its rows, each of which may be a `PeltierError`. `trace` has the span of the
        batch."""
        span = None if trace is None else trace.span_context
        compute, num_adapters, rest = time.monotonic() - self.started_at, self.num_adapters, iter(outputs)
        settle(
            self.tickets,
            [
                RowsOutcome(
                    list(islice(rest, len(ticket.rows))),
                    self.started_at - ticket.queued_at,
                    compute,
                    len(outputs),
                    num_adapters,
                    span,
                )
                for ticket in self.tickets
            ],
        )
