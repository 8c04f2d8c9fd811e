"""One row on its way through the rooms, and what its caller hears of it."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from peltier_adapters.batch.row import Row
from peltier_adapters.generation.search import Decoding
from peltier_client.errors import PeltierError

from peltier_server.auth.caller import TENANT
from peltier_server.queue.prices import Price

T = TypeVar("T")

# Of its tenant's tickets one of a higher priority comes before those that came so much earlier, and no further: so
# every ticket's turn comes, however many of a higher priority follow.
SECONDS_A_PRIORITY = 60.0


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """A row's output or its finished draft, how long it waited and was computed, and in what company at the end."""

    output: T
    queue_seconds: float
    compute_seconds: float
    batch_rows: int
    batch_adapters: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Tokens that a draft has gained, how long it waited, and how long it has been decoded."""

    ids: tuple[int, ...]
    queue_seconds: float
    compute_seconds: float


Listener = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Terms:
    """On whose account rows are computed, until when in seconds of `time.monotonic`, and how urgently."""

    tenant: str = TENANT
    deadline: float = math.inf
    priority: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Ticket:
    """One row that waits for its outcome: for an output, or with `decoding` for a text. Without a `price` it costs its
    tokens.

    Moments are seconds of `time.monotonic`. A `listener` is told of new tokens, in its caller's event loop.
    """

    row: Row
    future: asyncio.Future[Outcome[Any]]
    deadline: float
    record_gates: bool = False
    decoding: Decoding | None = None
    listener: Listener | None = None
    tenant: str = TENANT
    priority: int = 0
    queued_at: float = field(default_factory=time.monotonic)
    price: Price | None = None

    @property
    def gone(self) -> bool:
        """Nobody waits for the outcome any more."""
        return self.future.cancelled()

    @property
    def rank(self) -> float:
        """Its place among its tenant's: the smallest is first."""
        return self.queued_at - SECONDS_A_PRIORITY * self.priority

    @property
    def asked(self) -> Decoding:
        """How its text is decoded."""
        assert self.decoding is not None, "a ticket without decoding is a row of a batch"
        return self.decoding

    @property
    def num_rows(self) -> int:
        """Rows that it takes up while it is computed: one, or one for each beam."""
        return 1 if self.decoding is None else self.decoding.num_beams

    @property
    def pass_cost(self) -> int:
        """What its first pass costs without its adapter's weights, in tokens of the plain backbone."""
        return self.pass_tokens if self.price is None else self.price.first

    @property
    def weights_cost(self) -> int:
        """What its adapter's weights cost, once in a batch."""
        return 0 if self.price is None else self.price.weights

    @property
    def step_cost(self) -> int:
        """What a step costs that writes one token on each of its rows."""
        return self.num_rows * (1 if self.price is None else self.price.step)

    @property
    def step_weights_cost(self) -> int:
        """What its adapter's weights cost, once in a step."""
        return 0 if self.price is None else self.price.step_weights

    @property
    def pass_tokens(self) -> int:
        """What its first pass computes, exactly."""
        return self.row.num_tokens if self.decoding is None else len(self.row.prompted)

    @property
    def tokens(self) -> int:
        """What the row may cost in all: that pass, and every token that its beams may write."""
        if self.decoding is None:
            return self.pass_tokens
        return self.pass_tokens + self.decoding.max_new_tokens * self.decoding.num_beams


def settle(tickets: Sequence[Ticket], results: Sequence[Outcome[Any] | PeltierError]) -> None:
    """Hand each caller its own result, in one call to their event loop for all of them."""
    if tickets:
        tickets[0].future.get_loop().call_soon_threadsafe(_settle, tickets, results)


def report_progress(tickets: Sequence[Ticket], progress_of: Sequence[Progress]) -> None:
    """Let each listener know of its draft's new tokens, in one call to their event loop for all of them."""
    if tickets:
        tickets[0].future.get_loop().call_soon_threadsafe(_report_progress, tickets, progress_of)


def _settle(tickets: Sequence[Ticket], results: Sequence[Outcome[Any] | PeltierError]) -> None:
    for ticket, result in zip(tickets, results, strict=True):
        if ticket.future.done():
            continue
        if isinstance(result, PeltierError):
            ticket.future.set_exception(result)
        else:
            ticket.future.set_result(result)


def _report_progress(tickets: Sequence[Ticket], progress_of: Sequence[Progress]) -> None:
    for ticket, progress in zip(tickets, progress_of, strict=True):
        if ticket.listener is not None and not ticket.future.done():
            ticket.listener(progress)
