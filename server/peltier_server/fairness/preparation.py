"""Bounds the work between receiving a request and queueing its rows, and shares it between tenants."""

import asyncio
import contextlib
from asyncio import AbstractEventLoop
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

from peltier_server.fairness.fair_turns import FairTurns
from peltier_server.fairness.room import Room
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


class Preparation:
    """Parses bodies and tokenises texts in two threads, in bounded pieces; names are resolved on the event loop, in
    slices. Tenants take turns at both, by weight. Bytes of bodies, inputs and bytes of answers in progress are
    bounded, for all tenants together and for each."""

    def __init__(self, limits: LimitSettings, enforcer: QuotaEnforcer) -> None:
        self.enforcer = enforcer
        self.max_inputs = limits.max_inputs
        self.max_text_chars = limits.max_text_chars
        self.max_body_bytes = limits.max_body_bytes
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
