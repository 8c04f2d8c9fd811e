"""How many requests a client has in flight at once: as many as the server takes."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from peltier_client.exchange.request import retry_after_seconds

# As many as the connection pool has.
MAX_IN_FLIGHT = 100
# Quotas of requests are of seconds; a training or a batch that must end before the next is retried after a minute.
_LONG_SECONDS = 30.0
# A limit that is too high costs refusals, and a request has few attempts.
_ROUNDS = 10


def is_refusal(status: int, headers: Mapping[str, str]) -> bool:
    """Whether a busy server has answered this: 503, or 429 for a quota of requests. A 429 with a long `Retry-After`, or
    none, is for a quota that fewer requests in flight do not help, such as that of trainings."""
    pause = retry_after_seconds(headers.get("retry-after"))
    return status == 503 or (status == 429 and pause is not None and pause < _LONG_SECONDS)


class InFlightLimit:
    """A limit that follows the server.

    A server that refuses a request holds at most the others that are in flight, so their number becomes the limit. Ten
    rounds of answers raise it by 1, the next ten by 2, 4, and so on, until the next refusal. A round is as many answers
    as the limit.
    """

    def __init__(self, max_limit: int = MAX_IN_FLIGHT) -> None:
        self.limit = self._max_limit = max_limit
        self.count = 0
        self._step, self._num_answers = 1, 0

    @property
    def has_room(self) -> bool:
        """Whether one more request may begin."""
        return self.count < self.limit

    def begin(self) -> None:
        """One more request is in flight."""
        self.count += 1

    def end(self, *, is_refused: bool | None) -> None:
        """A request has been refused or answered; None without an answer, which says nothing of the limit."""
        self.count -= 1
        if is_refused is None:
            return
        if is_refused:
            self.limit = max(1, min(self.limit, self.count))
            self._step, self._num_answers = 1, 0
            return
        self._num_answers += 1
        if self._num_answers >= _ROUNDS * self.limit:
            self.limit = min(self._max_limit, self.limit + self._step)
            self._step, self._num_answers = 2 * self._step, 0


class Exchange:
    """A request in flight. The sender stores whether its answer `is_refusal`."""

    is_refused: bool | None = None


class AsyncRequestGate:
    """Requests of one event loop wait in their order until the limit has room for them."""

    def __init__(self) -> None:
        self.limit = InFlightLimit()
        self._waiting = deque[asyncio.Future[None]]()

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[Exchange]:
        """One more request is in flight during the block."""
        await self._wait()
        exchange = Exchange()
        try:
            yield exchange
        finally:
            self._leave(is_refused=exchange.is_refused)

    async def _wait(self) -> None:
        if self.limit.has_room and not self._waiting:
            self.limit.begin()
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            # `_leave` may have let it in just before.
            if not waiter.cancelled():
                self._leave(is_refused=None)
            raise

    def _leave(self, *, is_refused: bool | None) -> None:
        self.limit.end(is_refused=is_refused)
        while self._waiting and self.limit.has_room:
            waiter = self._waiting.popleft()
            if not waiter.cancelled():
                self.limit.begin()
                waiter.set_result(None)


class RequestGate:
    """Requests of any threads wait until the limit has room for them."""

    def __init__(self) -> None:
        self.limit = InFlightLimit()
        self._changed = threading.Condition()

    @contextmanager
    def enter(self) -> Iterator[Exchange]:
        """One more request is in flight during the block."""
        with self._changed:
            self._changed.wait_for(lambda: self.limit.has_room)
            self.limit.begin()
        exchange = Exchange()
        try:
            yield exchange
        finally:
            with self._changed:
                self.limit.end(is_refused=exchange.is_refused)
                self._changed.notify_all()
