"""Bounds the work between receiving a request and queueing its rows, and shares it between tenants."""

import asyncio
import contextlib
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

from peltier_server.fairness.scheduler import Scheduler, WeightOf
from peltier_server.fairness.shared_bound import SharedBound
from peltier_server.quotas.enforcer import QuotaEnforcer
from peltier_server.settings import LimitSettings

T = TypeVar("T")

_NUM_THREADS = 2
# The cost of a piece of work is the number of characters that are tokenised in the same time.
MAX_PIECE_COST = 16_384
# Per tenant. Twice the rows of a batch, so that batches stay full. Further items begin later, so that little has to be
# cancelled when a caller disconnects.
MAX_ITEMS_BEGUN = 256


@dataclass(frozen=True, eq=False, slots=True)
class _Waiter:
    tenant: str
    pass_cost: int
    future: asyncio.Future[None]
    # All ranks are equal, so that a tenant's work is served in the order of arrival.
    rank: float = 0.0


class FairTurns:
    """At most `num_places` pieces of work at a time. Waiting tenants share the places by weight and cost, as they share
    batches (`Scheduler`), so a new tenant waits for few pieces, however many pieces of another tenant wait.

    Belongs to one event loop. A cancelled waiter leaves at once.
    """

    def __init__(self, num_places: int, max_cost: int, weight_of: WeightOf) -> None:
        """A piece should cost at most `max_cost`, in any unit."""
        self._num_free = num_places
        self._waiting = Scheduler[_Waiter](max_cost, weight_of)

    @property
    def num_waiting(self) -> int:
        """Pieces of work that wait for a place."""
        return len(self._waiting)

    async def take(self, tenant: str, cost: int) -> None:
        """Waits for a place; the caller calls `give` when its work has ended."""
        waiter = _Waiter(tenant, max(1, cost), asyncio.get_running_loop().create_future())
        self._waiting.put(waiter)
        self._hand_out()
        try:
            await waiter.future
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif not waiter.future.cancelled():
                # The place was given in the same iteration of the loop.
                self.give()
            raise

    def give(self) -> None:
        """Returns a place."""
        self._num_free += 1
        self._hand_out()

    @asynccontextmanager
    async def turn(self, tenant: str, cost: int) -> AsyncIterator[None]:
        """Holds a place during the block."""
        await self.take(tenant, cost)
        try:
            yield
        finally:
            self.give()

    def _hand_out(self) -> None:
        while self._num_free and (waiter := self._waiting.next()) is not None:
            if waiter.future.cancelled():
                self._waiting.remove(waiter)
                continue
            self._waiting.serve(waiter)
            self._num_free -= 1
            waiter.future.set_result(None)


class Room:
    """`num_places` places. A caller gets all of its places before the next caller gets any, because otherwise several
    callers could each hold some and wait forever for the rest. Belongs to one event loop."""

    def __init__(self, num_places: int) -> None:
        self.num_free = num_places
        self._line = asyncio.Lock()
        self._returned = asyncio.Event()
        self._num_callers = 0

    async def take(self, count: int, before_waiting: Callable[[], None] = lambda: None) -> None:
        """Waits for `count` places, at most `num_places`; if cancelled, it has taken none. If it has to wait, it calls
        `before_waiting` first, which may let others return their places."""
        if self._num_callers or self.num_free < count:
            before_waiting()
        self._num_callers += 1
        try:
            async with self._line:
                while self.num_free < count:
                    self._returned.clear()
                    await self._returned.wait()
                self.num_free -= count
        finally:
            self._num_callers -= 1

    def give(self, count: int = 1) -> None:
        """Returns `count` places."""
        self.num_free += count
        self._returned.set()


class Preparation:
    """Parses bodies and tokenises texts in two threads, in bounded pieces; names are resolved on the event loop, in
    slices. Tenants take turns at both, by weight. Bytes of bodies, inputs and bytes of answers in progress are
    bounded, for all tenants together and for each."""

    def __init__(self, limits: LimitSettings, enforcer: QuotaEnforcer) -> None:
        self.enforcer = enforcer
        self.limits = limits
        self.body_bytes = SharedBound(limits.max_pending_bytes, "bytes of request bodies")
        self.inputs = SharedBound(limits.max_pending_inputs, "inputs")
        self.answer_bytes = SharedBound(limits.max_pending_answer_bytes, "bytes of answers")
        self.slices = FairTurns(1, MAX_PIECE_COST, enforcer.weight)
        self.pieces = FairTurns(_NUM_THREADS, MAX_PIECE_COST, enforcer.weight)
        self._items_of = WeakValueDictionary[str, Room]()
        # Separate threads, so that large texts do not delay the loading of adapters.
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="preparation")

    async def run(self, tenant: str, cost: int, work: Callable[[], T]) -> T:
        """Runs `work` in a thread at the tenant's turn and returns its result. If this call is cancelled before the
        turn, `work` never starts."""
        await self.pieces.take(tenant, cost)
        try:
            running = self._threads.submit(work)
        except BaseException:
            self.pieces.give()
            raise
        # A cancelled call also keeps its place until the thread has finished, because a thread cannot be stopped.
        running.add_done_callback(partial(self._give_place, asyncio.get_running_loop()))
        return await asyncio.wrap_future(running)

    def room_for_items(self, tenant: str) -> Room:
        """The places for items of the tenant's mixed requests."""
        # Weakly referenced, so it exists while one of the requests is in progress.
        return self._items_of.setdefault(tenant, Room(MAX_ITEMS_BEGUN))

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _give_place(self, loop: AbstractEventLoop, _: "Future[object]") -> None:
        # The loop may have ended before the thread.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self.pieces.give)
