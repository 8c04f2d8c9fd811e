"""The work of one iteration of the runner."""

import time
from collections.abc import Sequence
from itertools import islice
from typing import Any

from peltier_adapters.batch.row import Row

from peltier_server.queue.ticket import RowsOutcome, Ticket, settle
from peltier_server.tracing.batch_trace import BatchTrace


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
