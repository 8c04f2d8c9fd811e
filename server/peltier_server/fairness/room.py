"""Places that are taken several at a time."""

import asyncio


class Room:
    """`num_places` places. Whoever takes several has them all before the next in line begins to take: else each of many
    could hold some, and wait for ever for the rest. Belongs to one event loop."""

    def __init__(self, num_places: int) -> None:
        self.num_free = num_places
        self._places = asyncio.Semaphore(num_places)
        self._line = asyncio.Lock()

    async def take(self, count: int) -> None:
        """Waits for so many places, at most all that there are; cancelled, it has taken none."""
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
        """So many places are free again."""
        self.num_free += count
        for _ in range(count):
            self._places.release()
