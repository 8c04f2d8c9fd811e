"""Tickets of one kind that wait, and how many of them one pass takes."""

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
    """What one pass may take: so many rows, and as much as so many tokens of the plain backbone cost. The weights of an
    adapter cost once, with its first ticket.

    The first ticket may cost more, and if it is `alone` there, with nothing else being computed, have more rows. Each
    step of the texts that are taken costs at most `steps` together.
    """

    cost: int
    rows: int
    steps: float = math.inf
    alone: bool = True
    first: bool = True
    adapters: set[Resident | None] = field(default_factory=set)

    def weights_cost(self, ticket: Ticket) -> int:
        """What the weights of `ticket`'s adapter cost in this pass."""
        return 0 if ticket.row.resident in self.adapters else ticket.weights_cost

    def step_cost(self, ticket: Ticket) -> int:
        """What `ticket` adds to each step of the texts that are taken."""
        return ticket.step_cost + (0 if ticket.row.resident in self.adapters else ticket.step_weights_cost)

    def admits(self, ticket: Ticket) -> bool:
        """Whether `ticket` goes in; then there is less room for the next."""
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
    """Shared between tenants (`Scheduler`). `tokens` is how many all that wait have and may write. Its owner holds the
    lock."""

    def __init__(self, max_batch_tokens: int, weight_of: WeightOf) -> None:
        self.tokens = 0
        self.tokens_by_tenant = Counter[str]()
        self._scheduler = Scheduler[Ticket](max_batch_tokens, weight_of)
        self._deadlines = Ranking[float, Ticket]()

    def __len__(self) -> int:
        return len(self._scheduler)

    def put(self, ticket: Ticket) -> None:
        """Lets it wait."""
        self._scheduler.put(ticket)
        if ticket.deadline < math.inf:
            self._deadlines.put(ticket, ticket.deadline)
        self._count(ticket, 1)

    def take(self, room: Room) -> Iterator[Ticket]:
        """As many as `room` admits, in turn; cancelled tickets are dropped on the way.

        One that comes to its turn and has more rows than there is room for ends the pass: many rows that are free
        together only come of waiting.
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
        """Those whose deadline has passed, wherever they stand."""
        late = []
        while (ticket := self._deadlines.first) is not None and ticket.deadline <= now:
            self.drop(ticket)
            late.append(ticket)
        return late

    def drop(self, ticket: Ticket) -> None:
        """Takes out a ticket, if it still waits."""
        if ticket in self._scheduler:
            self._scheduler.remove(ticket)
            self._forget(ticket)

    def charge(self, cost_by_tenant: Mapping[str, int]) -> None:
        """Tenants have had this besides what their tickets cost at first."""
        for tenant, cost in cost_by_tenant.items():
            self._scheduler.charge(tenant, cost)

    def _forget(self, ticket: Ticket) -> None:
        if ticket in self._deadlines:
            self._deadlines.remove(ticket)
        self._count(ticket, -1)

    def _count(self, ticket: Ticket, sign: int) -> None:
        self.tokens += sign * ticket.tokens
        # Nobody stays in the table with nothing, since there may be many tenants in the course of time.
        if waiting := self.tokens_by_tenant[ticket.tenant] + sign * ticket.tokens:
            self.tokens_by_tenant[ticket.tenant] = waiting
        else:
            self.tokens_by_tenant.pop(ticket.tenant, None)
