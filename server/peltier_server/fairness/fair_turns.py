"""Places for work that several tenants want done, taken by turns."""

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
    # Of one tenant the first to come is the first to be served.
    rank: float = 0.0


class FairTurns:
    """At most `num_places` pieces of work at a time. Tenants whose work waits share the places by weight and cost, as
    batches are shared (`Scheduler`), so a newcomer waits for few pieces, however many of another tenant wait.

    Belongs to one event loop. Whoever is cancelled while it waits leaves the line at once.
    """

    def __init__(self, num_places: int, max_cost: int, weight_of: WeightOf) -> None:
        """A piece should cost at most `max_cost`, in any unit that is the same for all."""
        self._num_free = num_places
        self._waiting = Scheduler[_Waiter](max_cost, weight_of)

    @property
    def num_waiting(self) -> int:
        """Pieces of work that have no place yet."""
        return len(self._waiting)

    async def take(self, tenant: str, cost: int) -> None:
        """Waits for a place; whoever has got it calls `give` when its work has ended."""
        waiter = _Waiter(tenant, max(1, cost), asyncio.get_running_loop().create_future())
        self._waiting.put(waiter)
        self._hand_out()
        try:
            await waiter.future
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif not waiter.future.cancelled():
                # The place came in the same turn of the loop.
                self.give()
            raise

    def give(self) -> None:
        """A place is free again."""
        self._num_free += 1
        self._hand_out()

    @asynccontextmanager
    async def turn(self, tenant: str, cost: int) -> AsyncIterator[None]:
        """A place for what is done meanwhile."""
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
