"""What is done between the socket and the batch queue: bounded, and shared between tenants."""

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
from peltier_server.settings import Settings

T = TypeVar("T")

_NUM_THREADS = 2
# A piece of work costs as much as reading so many characters of text into tokens.
MAX_PIECE_COST = 16_384
# Of one tenant: twice the rows of a batch, so that batches stay full. The others are not begun yet, and nothing of them
# has to be ended when their callers hang up.
MAX_ITEMS_BEGUN = 256


class Preparation:
    """Request bodies are parsed and texts tokenised in two threads, in bounded pieces; names are resolved on the event
    loop, in slices. Tenants take turns at both, by weight. Bytes of bodies, inputs and bytes of answers in progress are
    bounded, for all tenants together and for each."""

    def __init__(self, settings: Settings, enforcer: QuotaEnforcer) -> None:
        self.enforcer = enforcer
        self.max_inputs = settings.max_inputs
        self.max_text_chars = settings.max_text_chars
        self.max_body_bytes = settings.max_body_bytes
        self.body_bytes = SharedBound(settings.max_pending_bytes, "bytes of request bodies")
        self.inputs = SharedBound(settings.max_pending_inputs, "inputs")
        self.answer_bytes = SharedBound(settings.max_pending_answer_bytes, "bytes of answers")
        self.slices = FairTurns(1, MAX_PIECE_COST, enforcer.weight)
        self.pieces = FairTurns(_NUM_THREADS, MAX_PIECE_COST, enforcer.weight)
        self._items_of = WeakValueDictionary[str, Room]()
        # Of their own, so that megabytes of text never keep an adapter from loading.
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="preparation")

    async def run(self, tenant: str, cost: int, work: Callable[[], T]) -> T:
        """What `work` returns, in a thread, when the tenant's turn has come. Cancelled before, it never begins."""
        await self.pieces.take(tenant, cost)
        try:
            running = self._threads.submit(work)
        except BaseException:
            self.pieces.give()
            raise
        # A thread cannot be stopped: its place is free when it is, whether anyone still waits for the result or not.
        running.add_done_callback(partial(self._give_place, asyncio.get_running_loop()))
        return await asyncio.wrap_future(running)

    def room_for_items(self, tenant: str) -> Room:
        """Where the tenant's mixed requests get a place for each item that they begin, and give it back."""
        # Kept as long as one of them is in progress.
        return self._items_of.setdefault(tenant, Room(MAX_ITEMS_BEGUN))

    def close(self) -> None:
        """Lets the threads end."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _give_place(self, loop: AbstractEventLoop, _: "Future[object]") -> None:
        # The loop may have ended before the thread.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self.pieces.give)
