"""One text in decoding, and the tokens that its caller has received."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from peltier_adapters.generation.generation import Draft
from peltier_adapters.residency.bank import Resident
from peltier_client.errors import InferenceFailed, PeltierError

from peltier_server.queue.ticket import NewTokens, RowsOutcome, Ticket


@dataclass(eq=False)
class DecodeJob:
    """A ticket and its draft, which may be restarted. `sent` are the tokens that the ticket's listener has received.
    Times are seconds of `time.monotonic`."""

    ticket: Ticket
    draft: Draft
    started_at: float = field(default_factory=time.monotonic)
    sent: list[int] = field(default_factory=list)

    @property
    def queue_seconds(self) -> float:
        """The time in the queue."""
        return self.started_at - self.ticket.queued_at

    @property
    def compute_seconds(self) -> float:
        """The decoding time so far."""
        return time.monotonic() - self.started_at

    def result(self, stats: "StepStats") -> RowsOutcome[Draft] | PeltierError | None:
        """The caller's result; None while the draft is unfinished."""
        if self.draft.failed:
            return InferenceFailed("the model's output for this input is not finite")
        if self.sent and not self._repeats():
            return InferenceFailed("the generation was not reproducible after a restart")
        if not self.draft.done:
            return None
        return RowsOutcome([self.draft], self.queue_seconds, self.compute_seconds, stats.num_rows, stats.num_adapters)

    def new_progress(self) -> NewTokens | None:
        """Takes the tokens that the listener has not received yet."""
        new = tuple(self.draft.ids[len(self.sent) :])
        if self.ticket.listener is None or not new:
            return None
        self.sent += new
        return NewTokens(new, self.queue_seconds, self.compute_seconds)

    def _repeats(self) -> bool:
        ids = self.draft.ids
        return ids[: len(self.sent)] == self.sent[: len(ids)]


class StepStats:
    """Who shares a step: texts, rows (a text with beams has several), their tenants, distinct adapters, and `cost` in
    tokens of the plain backbone."""

    def __init__(self, jobs: Sequence[DecodeJob]) -> None:
        self.num_texts = len(jobs)
        self.num_rows = sum(job.ticket.num_beams for job in jobs)
        self.rows_by_tenant = Counter[str]()
        self.cost_by_tenant = Counter[str]()
        adapters = set[Resident]()
        for ticket in (job.ticket for job in jobs):
            self.rows_by_tenant[ticket.tenant] += ticket.num_beams
            self.cost_by_tenant[ticket.tenant] += ticket.step_cost
            if ticket.row.resident is not None and ticket.row.resident not in adapters:
                adapters.add(ticket.row.resident)
                self.cost_by_tenant[ticket.tenant] += ticket.price.step_weights
        self.num_adapters = len(adapters)
        self.cost = sum(self.cost_by_tenant.values())
