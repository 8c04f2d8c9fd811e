"""Rows that wait, and the batches that leave: bounded in tokens, first come first served."""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

from peltier_adapters.generation import Draft
from peltier_adapters.row import Row, RowOutput
from peltier_adapters.search import Decoding
from peltier_client.errors import DeadlinePassed, Draining, PeltierError, QueueFull, TooLarge

from peltier_server.batch import Batch
from peltier_server.lane import Lane, Room
from peltier_server.ticket import Listener, Outcome, Terms, Ticket, settle

_RETRY_AFTER_SECONDS = 1.0
_ANY_TIME = Terms()


class Batcher:
    """The queue between the event loop, which puts, and the runner's thread, which takes. Thread-safe.

    A batch has at most `max_batch_tokens` and `max_batch_rows`; a row that alone has more tokens travels alone. Drafts
    wait in a lane of their own until they fit into `max_decode_rows`, so that neither kind holds up the other. Both
    leave in the order they came. Cancelled rows are dropped, rows past their deadline fail with `DeadlinePassed`.
    """

    def __init__(
        self, *, max_batch_tokens: int, max_batch_rows: int, max_queue_tokens: int, max_decode_rows: int
    ) -> None:
        self._max_batch_tokens = max_batch_tokens
        self._max_batch_rows = max_batch_rows
        self._max_queue_tokens = max_queue_tokens
        self._max_decode_rows = max_decode_rows
        self._rows, self._drafts = Lane(), Lane()
        self._woken = False
        self._closed = False
        self._changed = threading.Condition()

    @property
    def queued_tokens(self) -> int:
        """What all that wait may cost, in tokens."""
        return self._rows.tokens + self._drafts.tokens

    def queued_tokens_by_tenant(self) -> dict[str, int]:
        """The same for each tenant who has any."""
        with self._changed:
            return dict(self._rows.tokens_by_tenant + self._drafts.tokens_by_tenant)

    async def compute(
        self, rows: Sequence[Row], terms: Terms = _ANY_TIME, *, record_gates: bool = False
    ) -> list[Outcome[RowOutput]]:
        """The outcomes of one request's rows, in order; the caller holds the leases of their adapters.

        Raises the first error, and only once every row has come to an end, because the leases must outlive them all.
        """
        loop = asyncio.get_running_loop()
        return await self._outcomes(
            [
                Ticket(row, loop.create_future(), terms.deadline, record_gates=record_gates, tenant=terms.tenant)
                for row in rows
            ]
        )

    async def write(
        self,
        rows: Sequence[Row],
        decodings: Sequence[Decoding],
        terms: Terms = _ANY_TIME,
        *,
        listener: Listener | None = None,
    ) -> list[Outcome[Draft]]:
        """`compute` for texts: one draft a row; `listener` hears of the new tokens of a single one."""
        loop = asyncio.get_running_loop()
        return await self._outcomes(
            [
                Ticket(
                    row,
                    loop.create_future(),
                    terms.deadline,
                    decoding=decoding,
                    listener=listener,
                    tenant=terms.tenant,
                )
                for row, decoding in zip(rows, decodings, strict=True)
            ]
        )

    def put(self, tickets: Sequence[Ticket]) -> None:
        """Queues all tickets of one request, or raises and queues none."""
        with self._changed:
            self._admit(sum(ticket.tokens for ticket in tickets))
            for ticket in tickets:
                (self._rows if ticket.decoding is None else self._drafts).put(ticket)
            self._changed.notify()

    def next(self, *, live_rows: int = 0) -> Batch | None:
        """Takes as many rows as fit, and as many drafts as fit beside the `live_rows` that are being decoded.

        While there are such rows it returns at once, with whatever waits. Without them it blocks until something
        waits; None once closed and empty. Empty after `wake`.
        """
        while True:
            with self._changed:
                self._changed.wait_for(lambda: live_rows or self._waits or self._woken or self._closed)
                returns, self._woken = bool(live_rows) or self._woken, False
                batch, late = self._take(live_rows)
                finished = self._closed and not self._waits
            settle(late, [DeadlinePassed("the deadline passed while the input waited") for _ in late])
            if batch.tickets or batch.drafts or returns:
                return batch
            if finished:
                return None

    def wake(self) -> None:
        """Makes `next` return even if no row waits."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def close(self) -> None:
        """Refuses new rows; those that wait are still taken."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    @property
    def _waits(self) -> bool:
        return bool(self._rows or self._drafts)

    def _admit(self, tokens: int) -> None:
        if self._closed:
            raise Draining("the server is stopping and takes nothing new", retry_after=_RETRY_AFTER_SECONDS)
        if tokens > self._max_queue_tokens:
            # Waiting would not help, so this is not QueueFull.
            raise TooLarge(f"the request costs {tokens} tokens; at most {self._max_queue_tokens} may wait at a time")
        if self.queued_tokens + tokens > self._max_queue_tokens:
            self._rows.sweep()
            self._drafts.sweep()
        if self.queued_tokens + tokens > self._max_queue_tokens:
            raise QueueFull(
                f"{self.queued_tokens} tokens wait of at most {self._max_queue_tokens}; {tokens} more do not fit",
                retry_after=_RETRY_AFTER_SECONDS,
            )

    def _take(self, live_rows: int) -> tuple[Batch, list[Ticket]]:
        now = time.monotonic()
        rows = self._rows.take(Room(self._max_batch_tokens, self._max_batch_rows), now)
        room = Room(self._max_batch_tokens, self._max_decode_rows - live_rows, alone=not live_rows)
        drafts = self._drafts.take(room, now)
        return Batch(rows.tickets, drafts.tickets), [*rows.late, *drafts.late]

    async def _outcomes(self, tickets: Sequence[Ticket]) -> list[Outcome[Any]]:
        self.put(tickets)
        return _all_or_error(await asyncio.gather(*(ticket.future for ticket in tickets), return_exceptions=True))


def _all_or_error(results: Sequence[Outcome[Any] | BaseException]) -> list[Outcome[Any]]:
    errors = [(number, result) for number, result in enumerate(results) if isinstance(result, BaseException)]
    if not errors:
        return [result for result in results if isinstance(result, Outcome)]
    number, first = errors[0]
    if len(results) > 1 and isinstance(first, PeltierError):
        raise type(first)(f"input {number}: {first}", [f"input {place}: {error}" for place, error in errors])
    raise first
