"""Rows of a request in the queue and the runner, and their results for the caller."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

from opentelemetry.trace import SpanContext
from peltier_adapters.batch.row import Row, RowOutput
from peltier_adapters.spec.decoding import Decoding
from peltier_client.errors import PeltierError

from peltier_server.auth.keyring import TENANT
from peltier_server.queue.prices import Price
from peltier_server.tracing import RequestTrace

T = TypeVar("T")

# A ticket overtakes its tenant's tickets that arrived at most this many seconds earlier, for each step of its priority.
# So no ticket waits forever, however many tickets of a higher priority follow.
SECONDS_PER_PRIORITY = 60.0


class RowsOutcome(NamedTuple, Generic[T]):
    """The outputs of rows or finished drafts, in order. The times are those of the last batch, which waited longest,
    and so are the numbers of its rows and adapters, and its span."""

    outputs: Sequence[T]
    queue_seconds: float
    compute_seconds: float
    batch_rows: int
    batch_adapters: int
    batch_span: SpanContext | None = None


class Results(Generic[T]):
    """The results of all rows or texts of one request. `future` has their outcome once each of them has ended, or the
    first error, with the number of its input. `inputs` has the number of each row's input, if these are not 0, 1, …
    Belongs to the event loop that runs when it is created."""

    def __init__(self, count: int, inputs: Sequence[int] | None = None) -> None:
        self._inputs = inputs
        self.future: asyncio.Future[RowsOutcome[T]] = asyncio.get_running_loop().create_future()
        self._found: list[T | PeltierError | None] = [None] * count
        self._num_open = count
        self._last: RowsOutcome[Any] | None = None

    def is_open(self, place: int) -> bool:
        """Whether the caller still waits for the result at `place`."""
        return not self.future.done() and self._found[place] is None

    def put(self, start: int, found: Sequence[T | PeltierError], outcome: RowsOutcome[Any] | None = None) -> None:
        """Notes what was found from `start` on, and the outcome of the batch. A result never changes."""
        if not self.is_open(start):
            return
        self._found[start : start + len(found)] = found
        self._num_open -= len(found)
        if outcome is not None and (self._last is None or outcome.queue_seconds > self._last.queue_seconds):
            self._last = outcome
        if not self._num_open:
            self._end()

    def _end(self) -> None:
        errors = [(place, found) for place, found in enumerate(self._found) if isinstance(found, PeltierError)]
        if errors:
            inputs = range(len(self._found)) if self._inputs is None else self._inputs
            named = dict[int, PeltierError]()
            for place, error in errors:
                named.setdefault(inputs[place], error)
            self.future.set_exception(_first_error(list(named.items()), inputs[-1] + 1))
        elif self._last is not None:
            found: list[Any] = self._found
            self.future.set_result(RowsOutcome(found, *self._last[1:]))


@dataclass(frozen=True, slots=True)
class NewTokens:
    """New tokens of a draft, its waiting time, and its decoding time so far."""

    ids: tuple[int, ...]
    queue_seconds: float
    compute_seconds: float


TokenListener = Callable[[NewTokens], None]
# Makes what a request needs of the output of one of its rows, so that the rest of the output is freed with the batch.
Reduce = Callable[[Row, RowOutput], Any]


class Terms(NamedTuple):
    """The tenant that is charged for rows, their deadline in seconds of `time.monotonic`, their priority, the spans of
    their request, and whether nobody waits for them, so that they can be computed in the background."""

    tenant: str = TENANT
    deadline: float = math.inf
    priority: int = 0
    trace: RequestTrace | None = None
    background: bool = False


@dataclass(eq=False, slots=True)
class Ticket:
    """Rows of one request with the same adapter, or with `decoding` the input of one text. Their results begin at
    `start` of `results`.

    Times are seconds of `time.monotonic`. The `listener` gets new tokens, in the caller's event loop. `pass_tokens` is
    the exact number of tokens of their first pass, `tokens` the maximum with those that beams may generate.

    Only the queue changes it. It is not frozen because frozen ones take ten times as long to create.
    """

    rows: Sequence[Row]
    price: Price
    results: Results[Any]
    start: int = 0
    deadline: float = math.inf
    record_gates: bool = False
    reduce: Reduce | None = None
    decoding: Decoding | None = None
    listener: TokenListener | None = None
    tenant: str = TENANT
    priority: int = 0
    trace: RequestTrace | None = None
    background: bool = False
    queued_at: float = field(default_factory=time.monotonic)
    # The first rows, as many as the batch that is being filled has taken.
    num_served: int = field(default=0, init=False)
    pass_tokens: int = field(init=False)
    tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = self.pass_tokens = self.price.tokens
        if self.decoding is not None:
            self.tokens += self.decoding.max_new_tokens * self.decoding.num_beams

    def split(self) -> "Ticket":
        """Removes the rows that were served; returns a ticket with them."""
        count, self.num_served = self.num_served, 0
        price, self.price = self.price.split(count)
        first = replace(self, rows=self.rows[:count], price=price)
        self.rows, self.start = self.rows[count:], self.start + count
        self.tokens -= first.tokens
        self.pass_tokens -= first.pass_tokens
        return first

    @property
    def row(self) -> Row:
        """The first of its rows. They all have its adapter."""
        return self.rows[0]

    @property
    def future(self) -> asyncio.Future[RowsOutcome[Any]]:
        """The outcome of the request."""
        return self.results.future

    @property
    def gone(self) -> bool:
        """Whether the caller has cancelled the request."""
        return self.future.cancelled()

    @property
    def is_open(self) -> bool:
        """Whether the caller still waits for its results."""
        return self.results.is_open(self.start)

    @property
    def rank(self) -> float:
        """Its order among its tenant's tickets: the smallest rank is first."""
        return self.queued_at - SECONDS_PER_PRIORITY * self.priority

    @property
    def asked(self) -> Decoding:
        """The parameters of a text's decoding."""
        assert self.decoding is not None, "a ticket without decoding has rows of a batch"
        return self.decoding

    @property
    def pass_cost(self) -> int:
        """The cost of the first pass of its next row, without the weights of its adapter."""
        return self.price.rows[self.num_served]

    @property
    def num_beams(self) -> int:
        """The rows of the computation of each of its rows."""
        return 1 if self.decoding is None else self.decoding.num_beams

    @property
    def step_cost(self) -> int:
        """The cost of a step that generates a token on each of its beams."""
        return self.num_beams * self.price.step


def settle(tickets: Sequence[Ticket], results: Sequence[RowsOutcome[Any] | PeltierError]) -> None:
    """Gives each caller the outcome of a ticket, whose outputs may be errors, or one error for all of its rows. Makes
    one call to their event loop."""
    if tickets:
        tickets[0].future.get_loop().call_soon_threadsafe(_settle, tickets, results)


def report_progress(tickets: Sequence[Ticket], progress_of: Sequence[NewTokens]) -> None:
    """Gives each listener its draft's new tokens, in one call to their event loop."""
    if tickets:
        tickets[0].future.get_loop().call_soon_threadsafe(_report_progress, tickets, progress_of)


def _settle(tickets: Sequence[Ticket], results: Sequence[RowsOutcome[Any] | PeltierError]) -> None:
    for ticket, result in zip(tickets, results, strict=True):
        if isinstance(result, PeltierError):
            ticket.results.put(ticket.start, [result] * len(ticket.rows))
        else:
            ticket.results.put(ticket.start, result.outputs, result)


def _report_progress(tickets: Sequence[Ticket], progress_of: Sequence[NewTokens]) -> None:
    for ticket, progress in zip(tickets, progress_of, strict=True):
        if ticket.listener is not None and not ticket.future.done():
            ticket.listener(progress)


def _first_error(errors: Sequence[tuple[int, PeltierError]], count: int) -> PeltierError:
    place, first = errors[0]
    if count == 1:
        return first
    return type(first)(f"input {place}: {first}", [f"input {place}: {error}" for place, error in errors])
