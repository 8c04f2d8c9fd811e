"""Waiting tickets of one kind in fair order."""

import logging
import math
from collections import Counter
from collections.abc import Mapping

from peltier_server.fairness.scheduler import Ranking, Scheduler, WeightOf
from peltier_server.queue.batch import BatchRoom
from peltier_server.queue.ticket import Ticket

logger = logging.getLogger(__name__)


class FairQueue:
    """Tickets in the fair order of a `Scheduler`. Its length is the number of their rows, `live_rows` are those for
    which somebody waits, and `tokens` are those of all rows, including those that they may generate. The caller holds
    a lock."""

    def __init__(self, max_batch_tokens: int, weight_of: WeightOf) -> None:
        self._num_rows = self.live_rows = self.tokens = 0
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

    def take(self, room: BatchRoom) -> list[Ticket]:
        """Takes rows in order while `room` admits them, as tickets, and drops cancelled tickets. A failure after some
        rows is only logged, because their callers wait for them.

        A text with more beams than the room has rows ends the pass. Otherwise later texts would always take the free
        rows, and there would never be enough of them.
        """
        served: dict[Ticket, None] = {}
        try:
            self._fill(room, served)
        except Exception:
            if not served:
                raise
            logger.exception("the queue failed after rows or texts of %d requests had left it", len(served))
        return [self._leave(ticket) for ticket in served]

    def _fill(self, room: BatchRoom, served: dict[Ticket, None]) -> None:
        while (ticket := self._next(room)) is not None:
            if ticket.gone:
                served.pop(ticket, None)
                self.drop(ticket)
                continue
            # After each row another tenant may be next.
            left, max_rows = room.cost, 1 if self._scheduler.is_shared else len(ticket.rows) - ticket.num_served
            num_rows = room.admits(ticket, max_rows)
            if not num_rows:
                break
            room.adapters.add(ticket.row.resident)
            served[ticket] = None
            self._serve(ticket, num_rows, left - room.cost)

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

    def _next(self, room: BatchRoom) -> Ticket | None:
        """The next ticket, or if its row does not fit, the next one that does even if it shares nothing."""
        ticket = self._scheduler.next()
        if ticket is None or room.first or room.pass_cost(ticket) <= room.cost:
            return ticket
        return self._scheduler.next(room.cost)

    def _serve(self, ticket: Ticket, num_rows: int, cost: int) -> None:
        ticket.num_served += num_rows
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
        self.live_rows += 0 if ticket.background else sign * len(ticket.rows)
        self.tokens += sign * ticket.tokens
        # Tenants without tickets are removed, because over time there may be many tenants.
        if waiting := self.tokens_by_tenant[ticket.tenant] + sign * ticket.tokens:
            self.tokens_by_tenant[ticket.tenant] = waiting
        else:
            self.tokens_by_tenant.pop(ticket.tenant, None)
