"""An index that finds the first key among the keys up to a size."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from peltier_server.fairness.ranking import Ranking

K = TypeVar("K", bound=Hashable)
Rank = tuple[int, int]


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
