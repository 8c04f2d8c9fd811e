"""Waiting tickets of one kind, and how many of their rows a pass takes."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from peltier_adapters.residency.bank import Resident

from peltier_server.fairness.scheduler import Scheduler, WeightOf
from peltier_server.fairness.size_index import Ranking
from peltier_server.queue.ticket import Ticket


@dataclass
class BatchRoom:
    """The room of one pass: rows, and cost in tokens of the plain backbone. An adapter's weights are charged once, with
    its first ticket.

    The first row may cost more, and may have more beams if it is `alone`, with nothing else in progress. The steps of
    the taken texts cost at most `steps` together.
    """

    cost: int
    rows: int
    steps: float = math.inf
    alone: bool = True
    first: bool = True
    adapters: set[Resident | None] = field(default_factory=set)

    def weights_cost(self, ticket: Ticket) -> int:
        """The cost of the weights of `ticket`'s adapter in this pass."""
        return 0 if ticket.row.resident in self.adapters else ticket.price.weights

    def step_cost(self, ticket: Ticket) -> int:
        """The cost that `ticket` adds to each step of the taken texts."""
        return ticket.step_cost + (0 if ticket.row.resident in self.adapters else ticket.price.step_weights)

    def admits(self, ticket: Ticket, max_rows: int) -> int:
        """How many of the next `max_rows` rows of `ticket` fit; takes their room."""
        cost, step_cost = ticket.pass_cost + self.weights_cost(ticket), self.step_cost(ticket)
        if not (self.first or cost <= self.cost):
            return 0
        fits = ticket.num_beams <= self.rows and step_cost <= self.steps
        if not ((self.first and self.alone) or fits):
            return 0
        self.cost -= cost
        self.steps -= step_cost
        self.rows -= ticket.num_beams
        self.first = False
        num_rows = 1
        for cost in islice(ticket.price.rows, ticket.num_served + 1, ticket.num_served + max_rows):
            if cost > self.cost or not self.rows:
                break
            self.cost -= cost
            self.rows -= 1
            num_rows += 1
        return num_rows


class FairQueue:
    """Tickets in the fair order of a `Scheduler`. Its length is the number of their rows, and `tokens` are those of all
    rows, including those that they may generate. The caller holds a lock."""

    def __init__(self, max_batch_tokens: int, weight_of: WeightOf) -> None:
        self._num_rows = self.tokens = 0
        self.tokens_by_tenant = Counter[str]()
        self._scheduler = Scheduler[Ticket](max_batch_tokens, weight_of)
        self._deadlines = Ranking[float, Ticket]()

    def __len__(self) -> int:
        return self._num_rows

    def put(self, ticket: Ticket) -> None:
        """Queues a ticket."""
        self._scheduler.put(ticket)
        if ticket.deadline < math.inf:
            self._deadlines.put(ticket, ticket.deadline)
        self._count(ticket, 1)

    def take(self, room: BatchRoom) -> Iterator[Ticket]:
        """Takes rows in order while `room` admits them, as tickets, and drops cancelled tickets.

        A text with more beams than the room has rows ends the pass. Otherwise later texts would always take the free
        rows, and there would never be enough of them.
        """
        served: dict[Ticket, None] = {}
        try:
            while (ticket := self._scheduler.next(None if room.first else room.cost)) is not None:
                if ticket.gone:
                    served.pop(ticket, None)
                    self.drop(ticket)
                    continue
                weights = room.weights_cost(ticket)
                # After each row another tenant may be next.
                num_rows = room.admits(ticket, 1 if self._scheduler.is_shared else len(ticket.rows))
                if not num_rows:
                    break
                room.adapters.add(ticket.row.resident)
                served[ticket] = None
                self._serve(ticket, num_rows, weights)
        finally:
            # Also after a failure, because their callers wait for them.
            for ticket in served:
                yield self._leave(ticket)

    def take_late(self, now: float) -> list[Ticket]:
        """Takes all tickets whose deadline has passed."""
        late = []
        while (ticket := self._deadlines.first) is not None and ticket.deadline <= now:
            self.drop(ticket)
            late.append(ticket)
        return late

    def drop(self, ticket: Ticket) -> None:
        """Removes a ticket, if it still waits."""
        if ticket in self._scheduler:
            self._scheduler.remove(ticket)
            self._forget(ticket)

    def charge(self, cost_by_tenant: Mapping[str, int]) -> None:
        """Charges tenants for more than the first pass of their tickets."""
        for tenant, cost in cost_by_tenant.items():
            self._scheduler.charge(tenant, cost)

    def _serve(self, ticket: Ticket, num_rows: int, weights_cost: int) -> None:
        start, ticket.num_served = ticket.num_served, ticket.num_served + num_rows
        cost = sum(ticket.price.rows[start : ticket.num_served]) + weights_cost
        if ticket.num_served == len(ticket.rows):
            self._scheduler.serve(ticket, cost)
        else:
            self._scheduler.charge(ticket.tenant, cost)

    def _leave(self, ticket: Ticket) -> Ticket:
        """The ticket of the rows that were served; the others wait on."""
        if ticket.num_served == len(ticket.rows):
            self._forget(ticket)
            return ticket
        first = ticket.split()
        self._count(first, -1)
        return first

    def _forget(self, ticket: Ticket) -> None:
        if ticket in self._deadlines:
            self._deadlines.remove(ticket)
        self._count(ticket, -1)

    def _count(self, ticket: Ticket, sign: int) -> None:
        self._num_rows += sign * len(ticket.rows)
        self.tokens += sign * ticket.tokens
        # Tenants without tickets are removed, because over time there may be many tenants.
        if waiting := self.tokens_by_tenant[ticket.tenant] + sign * ticket.tokens:
            self.tokens_by_tenant[ticket.tenant] = waiting
        else:
            self.tokens_by_tenant.pop(ticket.tenant, None)
