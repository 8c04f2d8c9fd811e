"""Concurrent work with a bounded number of places, which tenants take in turns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from peltier_server.fairness.scheduler import Scheduler, WeightOf


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
