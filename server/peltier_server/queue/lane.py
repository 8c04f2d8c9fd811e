"""Tickets of one kind that wait, and how many of them one pass takes."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from peltier_server.queue.ranking import Ranking
from peltier_server.queue.scheduler import Scheduler, WeightOf
from peltier_server.queue.ticket import Ticket


@dataclass
class Room:
    """What one pass may take: so many tokens and rows.

    The first ticket may have more tokens, and if it is `alone` there, with nothing else being computed, more rows.
    """

    tokens: int
    rows: int
    alone: bool = True
    first: bool = True

    def admits(self, ticket: Ticket) -> bool:
        """Whether `ticket` goes in; then there is less room for the next."""
        if not (self.first or ticket.pass_tokens <= self.tokens):
            return False
        if not ((self.first and self.alone) or ticket.num_rows <= self.rows):
            return False
        self.tokens -= ticket.pass_tokens
        self.rows -= ticket.num_rows
        self.first = False
        return True


class Lane:
    """Shared between tenants (`Scheduler`). `tokens` is what all that wait may cost. Its owner holds the lock."""

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
        self._count(ticket, ticket.tokens)

    def take(self, room: Room) -> Iterator[Ticket]:
        """As many as `room` admits, in turn; cancelled tickets are dropped on the way.

        One that comes to its turn and has more rows than there is room for ends the pass: many rows that are free
        together only come of waiting.
        """
        while (ticket := self._scheduler.next(None if room.first else room.tokens)) is not None:
            if ticket.gone:
                self.drop(ticket)
            elif room.admits(ticket):
                self._scheduler.serve(ticket)
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

    def charge(self, tokens_by_tenant: Mapping[str, int]) -> None:
        """Tenants have had these tokens besides those that their tickets cost at first."""
        for tenant, tokens in tokens_by_tenant.items():
            self._scheduler.charge(tenant, tokens)

    def _forget(self, ticket: Ticket) -> None:
        if ticket in self._deadlines:
            self._deadlines.remove(ticket)
        self._count(ticket, -ticket.tokens)

    def _count(self, ticket: Ticket, tokens: int) -> None:
        self.tokens += tokens
        # Nobody stays in the table with nothing, since there may be many tenants in the course of time.
        if waiting := self.tokens_by_tenant[ticket.tenant] + tokens:
            self.tokens_by_tenant[ticket.tenant] = waiting
        else:
            self.tokens_by_tenant.pop(ticket.tenant, None)
