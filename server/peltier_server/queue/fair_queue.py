"""Waiting tickets of one kind, and how many of them a pass takes."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from peltier_adapters.residency.bank import Resident

from peltier_server.fairness.ranking import Ranking
from peltier_server.fairness.scheduler import Scheduler, WeightOf
from peltier_server.queue.ticket import Ticket


@dataclass
class Room:
    """The room of one pass: rows, and cost in tokens of the plain backbone. An adapter's weights are charged once, with
    its first ticket.

    The first ticket may cost more, and may have more rows if it is `alone`, with nothing else in progress. The steps of
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
        return 0 if ticket.row.resident in self.adapters else ticket.weights_cost

    def step_cost(self, ticket: Ticket) -> int:
        """The cost that `ticket` adds to each step of the taken texts."""
        return ticket.step_cost + (0 if ticket.row.resident in self.adapters else ticket.step_weights_cost)

    def admits(self, ticket: Ticket) -> bool:
        """Whether `ticket` fits; if so, takes its room."""
        cost, step_cost = ticket.pass_cost + self.weights_cost(ticket), self.step_cost(ticket)
        if not (self.first or cost <= self.cost):
            return False
        fits = ticket.num_rows <= self.rows and step_cost <= self.steps
        if not ((self.first and self.alone) or fits):
            return False
        self.cost -= cost
        self.steps -= step_cost
        self.rows -= ticket.num_rows
        self.first = False
        return True


class FairQueue:
    """Tickets in the fair order of a `Scheduler`. `tokens` are those of all tickets, including those that they may
    generate. The caller holds a lock."""

    def __init__(self, max_batch_tokens: int, weight_of: WeightOf) -> None:
        self.tokens = 0
        self.tokens_by_tenant = Counter[str]()
        self._scheduler = Scheduler[Ticket](max_batch_tokens, weight_of)
        self._deadlines = Ranking[float, Ticket]()

    def __len__(self) -> int:
        return len(self._scheduler)

    def put(self, ticket: Ticket) -> None:
        """Queues a ticket."""
        self._scheduler.put(ticket)
        if ticket.deadline < math.inf:
            self._deadlines.put(ticket, ticket.deadline)
        self._count(ticket, 1)

    def take(self, room: Room) -> Iterator[Ticket]:
        """Takes tickets in order while `room` admits them, and drops cancelled ones.

        A ticket with more rows than the room ends the pass. Otherwise later tickets would always take the free rows,
        and there would never be enough of them.
        """
        while (ticket := self._scheduler.next(None if room.first else room.cost)) is not None:
            if ticket.gone:
                self.drop(ticket)
                continue
            weights = room.weights_cost(ticket)
            if room.admits(ticket):
                room.adapters.add(ticket.row.resident)
                self._scheduler.serve(ticket)
                if weights:
                    self._scheduler.charge(ticket.tenant, weights)
                self._forget(ticket)
                yield ticket
            else:
                break

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

    def _forget(self, ticket: Ticket) -> None:
        if ticket in self._deadlines:
            self._deadlines.remove(ticket)
        self._count(ticket, -1)

    def _count(self, ticket: Ticket, sign: int) -> None:
        self.tokens += sign * ticket.tokens
        # Tenants without tickets are removed, because over time there may be many tenants.
        if waiting := self.tokens_by_tenant[ticket.tenant] + sign * ticket.tokens:
            self.tokens_by_tenant[ticket.tenant] = waiting
        else:
            self.tokens_by_tenant.pop(ticket.tenant, None)
