"""Keys in the order of their ranks, any of which may leave at any time."""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", int, float, tuple[int, int])

# Of entries that have left and still stand in the heap, beside as many as there are live ones.
_SLACK = 16


class Ranking(Generic[R, K]):
    """The key with the smallest rank comes first, of equal ones the one that came first. O(log n) a call, amortised."""

    def __init__(self) -> None:
        self._heap: list[tuple[R, int, K]] = []
        self._entries: dict[K, tuple[R, int, K]] = {}
        self._num_put = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    @property
    def first(self) -> K | None:
        """The key that comes first, if there is any."""
        entry = self.first_entry
        return None if entry is None else entry[2]

    @property
    def first_entry(self) -> tuple[R, int, K] | None:
        """The same with its rank before it, and between them a number that no other key has."""
        # Whoever has left is only taken out of the heap here: there its place is known.
        while self._heap:
            entry = self._heap[0]
            if self._entries.get(entry[2]) is entry:
                return entry
            heappop(self._heap)
        return None

    def rank(self, key: K) -> R:
        """Of a key that is in it."""
        return self._entries[key][0]

    def put(self, key: K, rank: R) -> None:
        """Takes in a key that is not in it."""
        self._num_put += 1
        entry = self._entries[key] = (rank, self._num_put, key)
        heappush(self._heap, entry)

    def remove(self, key: K) -> None:
        """Takes out a key that is in it."""
        del self._entries[key]
        if len(self._heap) > 2 * len(self._entries) + _SLACK:
            self._heap = list(self._entries.values())
            heapify(self._heap)

    def clear(self) -> None:
        """Takes out all."""
        self._heap.clear()
        self._entries.clear()
