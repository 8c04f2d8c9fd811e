"""The order of rows in which the documents of a query are neighbours."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeVar

import torch
from torch.utils.data import Sampler

T = TypeVar("T")


class QuerySampler(Sampler[int]):
    """Rows in a random order of queries, and of the documents of each. A query that does not fit into a batch is
    divided between two; `queries` has the query of each row."""

    def __init__(self, queries: Sequence[int], seed: int) -> None:
        self._rows: dict[int, list[int]] = {}
        for row, query in enumerate(queries):
            self._rows.setdefault(query, []).append(row)
        self._num_rows, self._seed, self._epoch = len(queries), seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch, also of one that is resumed."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._num_rows

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed + self._epoch)
        shuffled = (_shuffled(rows, generator) for rows in _shuffled(list(self._rows.values()), generator))
        return chain.from_iterable(shuffled)


def _shuffled(items: Sequence[T], generator: torch.Generator) -> list[T]:
    return [items[place] for place in torch.randperm(len(items), generator=generator).tolist()]
