"""Priority queues from which any key can be removed: of all keys, and of the keys up to a size."""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", int, float, tuple[int, int])
Rank = tuple[int, int]

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


class SizeIndex(Generic[K]):
    """Keys with a size and a unique rank. Every call takes O(log n + log `max_size`), also the search for the first key
    up to a size among many larger keys.

    It is a binary tree over the sizes. A leaf ranks the keys of its size, and a node has the first key below it. Sizes
    above `max_size` share a leaf. Empty nodes are not stored. A key that comes alone is kept beside the tree until
    another one comes, because most of the time one tenant waits.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._num_leaves = 1 << (max_size + 1).bit_length()
        self._leaves: dict[int, Ranking[Rank, K]] = {}
        self._nodes: dict[int, tuple[Rank, int, K]] = {}
        self._alone: tuple[K, int, Rank] | None = None

    def put(self, key: K, size: int, rank: Rank) -> None:
        """Adds a key that is not in the index."""
        if self._alone is None and not self._nodes:
            self._alone = (key, size, rank)
            return
        if self._alone is not None:
            other, other_size, other_rank = self._alone
            self._alone = None
            self._put(other, self._leaf(other_size), other_rank)
        self._put(key, self._leaf(size), rank)

    def remove(self, key: K, size: int) -> None:
        """Removes a key that was added with `size`."""
        if self._alone is not None:
            self._alone = None
        else:
            self._remove(key, self._leaf(size))

    def move(self, key: K, size: int, new_size: int, rank: Rank) -> None:
        """Removes and adds a key. This is faster than two calls, because they share most of the path to the root."""
        if self._alone is not None:
            self._alone = (key, new_size, rank)
            return
        leaf, new_leaf = self._leaf(size), self._leaf(new_size)
        if leaf == new_leaf:
            self._leaves[leaf].remove(key)
            self._put(key, leaf, rank)
        else:
            self._put(key, new_leaf, rank)
            self._remove(key, leaf)

    @property
    def first(self) -> K | None:
        """The first of all keys."""
        if self._alone is not None:
            return self._alone[0]
        best = self._nodes.get(1)
        return None if best is None else best[2]

    def first_within(self, size: int) -> K | None:
        """The first key of at most `size`, which is at most `max_size`."""
        if self._alone is not None:
            return self._alone[0] if self._alone[1] <= size else None
        node = self._leaf(size)
        best = self._nodes.get(node)
        while node > 1:
            if node & 1:
                other = self._nodes.get(node - 1)
                if best is None or (other is not None and other < best):
                    best = other
            node >>= 1
        return None if best is None else best[2]

    def _leaf(self, size: int) -> int:
        return self._num_leaves + min(size, self._max_size + 1)

    def _put(self, key: K, leaf: int, rank: Rank) -> None:
        ranking = self._leaves.get(leaf)
        if ranking is None:
            ranking = self._leaves[leaf] = Ranking()
        ranking.put(key, rank)
        self._rise(leaf, ranking.first_entry)

    def _remove(self, key: K, leaf: int) -> None:
        ranking = self._leaves[leaf]
        ranking.remove(key)
        if not ranking:
            del self._leaves[leaf]
        self._rise(leaf, ranking.first_entry)

    def _rise(self, node: int, best: tuple[Rank, int, K] | None) -> None:
        """Updates the nodes above a leaf whose first key is now `best`."""
        nodes = self._nodes
        while node and nodes.get(node) is not best:
            if best is None:
                del nodes[node]
            else:
                nodes[node] = best
            other = nodes.get(node ^ 1)
            if best is None or (other is not None and other < best):
                best = other
            node >>= 1
