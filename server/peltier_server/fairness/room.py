"""A semaphore whose places are taken several at a time."""

import asyncio
from collections.abc import Callable


class Room:
    """`num_places` places. A caller gets all of its places before the next caller gets any, because otherwise several
    callers could each hold some and wait forever for the rest. Belongs to one event loop."""

    def __init__(self, num_places: int) -> None:
        self.num_free = num_places
        self._places = asyncio.Semaphore(num_places)
        self._line = asyncio.Lock()
        self._num_callers = 0

    async def take(self, count: int, before_waiting: Callable[[], None] = lambda: None) -> None:
        """Waits for `count` places, at most `num_places`; if cancelled, it has taken none. If it has to wait, it calls
        `before_waiting` first, which may let others return their places."""
        if self._num_callers or self.num_free < count:
            before_waiting()
        self._num_callers += 1
        try:
            await self._take_in_turn(count)
        finally:
            self._num_callers -= 1

    async def _take_in_turn(self, count: int) -> None:
        async with self._line:
            taken = 0
            try:
                while taken < count:
                    await self._places.acquire()
                    taken += 1
                    self.num_free -= 1
            except BaseException:
                self.give(taken)
                raise

    def give(self, count: int = 1) -> None:
        """Returns `count` places."""
        self.num_free += count
        for _ in range(count):
            self._places.release()
