"""A priority queue from which any key can be removed."""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", int, float, tuple[int, int])

# Removed entries that may stay in the heap, besides as many as there are live entries.
_SLACK = 16


class Ranking(Generic[R, K]):
    """The key with the smallest rank is first; equal ranks are in insertion order. Calls take O(log n), amortised."""

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
        """The first key, if there is one."""
        entry = self.first_entry
        return None if entry is None else entry[2]

    @property
    def first_entry(self) -> tuple[R, int, K] | None:
        """The first key as (rank, unique number, key), if there is one."""
        # Removed keys leave the heap only here, where their position is known.
        while self._heap:
            entry = self._heap[0]
            if self._entries.get(entry[2]) is entry:
                return entry
            heappop(self._heap)
        return None

    def rank(self, key: K) -> R:
        """The rank of a key."""
        return self._entries[key][0]

    def put(self, key: K, rank: R) -> None:
        """Adds a key that is not in the queue."""
        self._num_put += 1
        entry = self._entries[key] = (rank, self._num_put, key)
        heappush(self._heap, entry)

    def remove(self, key: K) -> None:
        """Removes a key."""
        del self._entries[key]
        if len(self._heap) > 2 * len(self._entries) + _SLACK:
            self._heap = list(self._entries.values())
            heapify(self._heap)

    def clear(self) -> None:
        """Removes all keys."""
        self._heap.clear()
        self._entries.clear()
