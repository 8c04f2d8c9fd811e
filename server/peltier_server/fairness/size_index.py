"""Who is first among those whose size is at most so much."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from peltier_server.fairness.ranking import Ranking

K = TypeVar("K", bound=Hashable)
Rank = tuple[int, int]


class SizeIndex(Generic[K]):
    """Keys with a size and a rank that no other has. Every call is O(log n + log `max_size`), also to find the first of
    those that fit where many do not.

    A binary tree over the sizes: a leaf ranks the keys of its size, a node knows the first below it. Sizes above
    `max_size` share one leaf. Only the nodes with something below them are kept.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._num_leaves = 1 << (max_size + 1).bit_length()
        self._leaves: dict[int, Ranking[Rank, K]] = {}
        self._nodes: dict[int, tuple[Rank, int, K]] = {}

    def put(self, key: K, size: int, rank: Rank) -> None:
        """Takes in a key that is not in it."""
        self._put(key, self._leaf(size), rank)

    def remove(self, key: K, size: int) -> None:
        """Takes out a key that was put in with `size`."""
        self._remove(key, self._leaf(size))

    def move(self, key: K, size: int, new_size: int, rank: Rank) -> None:
        """Both at once, which is the faster: most of the way up is shared."""
        leaf, new_leaf = self._leaf(size), self._leaf(new_size)
        if leaf == new_leaf:
            self._leaves[leaf].remove(key)
            self._put(key, leaf, rank)
        else:
            self._put(key, new_leaf, rank)
            self._remove(key, leaf)

    @property
    def first(self) -> K | None:
        """Of all."""
        best = self._nodes.get(1)
        return None if best is None else best[2]

    def first_within(self, size: int) -> K | None:
        """Of those that have at most `size`, which is at most `max_size`."""
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
        """Lets the nodes above a leaf know who is first in it now."""
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
