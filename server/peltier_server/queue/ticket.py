"""A row in the queue and the runner, and its results for its caller."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from peltier_adapters.batch.row import Row
from peltier_adapters.generation.search import Decoding
from peltier_client.errors import PeltierError

from peltier_server.auth.caller import TENANT
from peltier_server.queue.prices import Price

T = TypeVar("T")

# A ticket overtakes its tenant's tickets that arrived at most this many seconds earlier, for each step of its priority.
# So no ticket waits forever, however many tickets of a higher priority follow.
SECONDS_PER_PRIORITY = 60.0


class Outcome(NamedTuple, Generic[T]):
    """A row's output or finished draft, its times, and the rows and adapters of its last batch."""

    output: T
    queue_seconds: float
    compute_seconds: float
    batch_rows: int
    batch_adapters: int


@dataclass(frozen=True, slots=True)
class Progress:
    """New tokens of a draft, its waiting time, and its decoding time so far."""

    ids: tuple[int, ...]
    queue_seconds: float
    compute_seconds: float


Listener = Callable[[Progress], None]


class Terms(NamedTuple):
    """The tenant that is charged for rows, their deadline in seconds of `time.monotonic`, and their priority."""

    tenant: str = TENANT
    deadline: float = math.inf
    priority: int = 0


@dataclass(eq=False, slots=True)
class Ticket:
    """One row and the future of its outcome: an output, or with `decoding` a text. Without `price` it costs its tokens.

    Times are seconds of `time.monotonic`. The `listener` gets new tokens, in the caller's event loop. `pass_tokens` is
    the exact number of tokens of its first pass, `tokens` the maximum with those that its beams may generate.

    Nothing in it changes. It is not frozen because frozen ones take ten times as long to create, for every row.
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
    pass_tokens: int = field(init=False)
    tokens: int = field(init=False)

    # The cost of its first pass without its adapter's weights, in tokens of the plain backbone, and of these weights,
    # once in a batch.
    pass_cost: int = field(init=False)
    weights_cost: int = field(init=False)

    def __post_init__(self) -> None:
        if self.decoding is None:
            self.tokens = self.pass_tokens = self.row.num_tokens
        else:
            self.pass_tokens = self.row.num_inputs
            self.tokens = self.pass_tokens + self.decoding.max_new_tokens * self.decoding.num_beams
        if self.price is None:
            self.pass_cost, self.weights_cost = self.pass_tokens, 0
        else:
            self.pass_cost, self.weights_cost = self.price.first, self.price.weights

    @property
    def gone(self) -> bool:
        """Whether the caller has cancelled it."""
        return self.future.cancelled()

    @property
    def rank(self) -> float:
        """Its order among its tenant's tickets: the smallest rank is first."""
        return self.queued_at - SECONDS_PER_PRIORITY * self.priority

    @property
    def asked(self) -> Decoding:
        """The parameters of a text's decoding."""
        assert self.decoding is not None, "a ticket without decoding is a row of a batch"
        return self.decoding

    @property
    def num_rows(self) -> int:
        """Rows of its computation: one, or one for each beam."""
        return 1 if self.decoding is None else self.decoding.num_beams

    @property
    def step_cost(self) -> int:
        """The cost of a step that generates a token on each of its rows."""
        return self.num_rows * (1 if self.price is None else self.price.step)

    @property
    def step_weights_cost(self) -> int:
        """The cost of its adapter's weights, once in a step."""
        return 0 if self.price is None else self.price.step_weights


def settle(tickets: Sequence[Ticket], results: Sequence[Outcome[Any] | PeltierError]) -> None:
    """Gives each caller its result, in one call to their event loop."""
    if tickets:
        tickets[0].future.get_loop().call_soon_threadsafe(_settle, tickets, results)


def report_progress(tickets: Sequence[Ticket], progress_of: Sequence[Progress]) -> None:
    """Gives each listener its draft's new tokens, in one call to their event loop."""
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
