"""Tickets of one kind that wait, and how many of them one pass takes."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from peltier_server.ticket import Ticket


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


@dataclass(frozen=True)
class Taken:
    """Tickets that left a lane: to be computed, and those whose deadline has passed."""

    tickets: list[Ticket] = field(default_factory=list)
    late: list[Ticket] = field(default_factory=list)


class Lane:
    """First come first served. `tokens` is what all that wait may cost. Its owner holds the lock."""

    def __init__(self) -> None:
        self.tokens = 0
        self.tokens_by_tenant: Counter[str] = Counter()
        self._waiting: deque[Ticket] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, ticket: Ticket) -> None:
        """Behind all others."""
        self._waiting.append(ticket)
        self._count(ticket, ticket.tokens)

    def take(self, room: Room, now: float) -> Taken:
        """As many as `room` admits, in order; cancelled tickets are dropped on the way."""
        taken = Taken()
        while self._waiting:
            ticket = self._waiting[0]
            if not ticket.gone:
                if ticket.deadline <= now:
                    taken.late.append(ticket)
                elif room.admits(ticket):
                    taken.tickets.append(ticket)
                else:
                    break
            self._waiting.popleft()
            self._count(ticket, -ticket.tokens)
        return taken

    def sweep(self) -> None:
        """Drop the cancelled tickets, also those that stand far back."""
        self._replace(ticket for ticket in self._waiting if not ticket.gone)

    def _replace(self, tickets: Iterable[Ticket]) -> None:
        self._waiting = deque(tickets)
        self.tokens = 0
        self.tokens_by_tenant.clear()
        for ticket in self._waiting:
            self._count(ticket, ticket.tokens)

    def _count(self, ticket: Ticket, tokens: int) -> None:
        self.tokens += tokens
        # Nobody stays in the table with nothing, since there may be many tenants in the course of time.
        if waiting := self.tokens_by_tenant[ticket.tenant] + tokens:
            self.tokens_by_tenant[ticket.tenant] = waiting
        else:
            self.tokens_by_tenant.pop(ticket.tenant, None)
