"""How similar the texts of pairs are, by each form of embeddings."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from peltier_adapters.answers import terms, vectors
from torch import Tensor

Array = np.ndarray[Any, Any]


class Similarity(Protocol):
    """The similarity of the first and the second texts of pairs, in any order and scale."""

    def of_pairs(self) -> Array:
        """That of each pair, [pairs]."""

    def between(self, firsts: range, seconds: Array) -> Array:
        """That of the first texts of some pairs with the second texts of others, [firsts, seconds]."""


class Cosines:
    """The cosines of vectors [pairs, 2, size]."""

    def __init__(self, vectors: Array) -> None:
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        units = vectors / np.maximum(lengths, np.finfo(vectors.dtype).tiny)
        self._first, self._second = np.moveaxis(units, 1, 0)

    def of_pairs(self) -> Array:
        found: Array = (self._first * self._second).sum(-1)
        return found

    def between(self, firsts: range, seconds: Array) -> Array:
        found: Array = self._first[firsts] @ self._second[seconds].T
        return found


@dataclass(frozen=True)
class TermProducts:
    """The products of the weights of terms; `outputs` [terms, 2] are those of each text of each pair, one after the
    other. `of_pairs` is their cosine, as for pairs with scores (`SparseObjective`)."""

    outputs: Sequence[Tensor]
    vocab_size: int

    @cached_property
    def _texts(self) -> Sequence[terms.Terms]:
        return [terms.read(output) for output in self.outputs]

    @property
    def num_terms(self) -> float:
        """The mean number of terms of a text."""
        return float(np.mean([len(one.indices) for one in self._texts]))

    def of_pairs(self) -> Array:
        found = []
        for first, second in zip(self._texts[::2], self._texts[1::2], strict=True):
            dense = torch.zeros(self.vocab_size).index_put((first.indices,), first.weights)
            length = float(first.weights.norm() * second.weights.norm())
            found.append(float(dense[second.indices] @ second.weights) / length if length else 0.0)
        return np.array(found)

    def between(self, firsts: range, seconds: Array) -> Array:
        found: Array = torch.sparse.mm(self._second(seconds), self._dense(firsts)).T.numpy()
        return found

    def _dense(self, firsts: range) -> Tensor:
        """The weights of first texts, [vocabulary, firsts]."""
        dense = torch.zeros(self.vocab_size, len(firsts))
        for column, number in enumerate(firsts):
            own = self._texts[2 * number]
            dense[own.indices, column] = own.weights
        return dense

    def _second(self, seconds: Array) -> Tensor:
        """The weights of second texts, sparse, [seconds, vocabulary]."""
        chosen = [self._texts[2 * number + 1] for number in seconds.tolist()]
        rows = torch.arange(len(chosen)).repeat_interleave(torch.tensor([len(one.indices) for one in chosen]))
        places = torch.stack((rows, torch.cat([one.indices for one in chosen])))
        weights = torch.cat([one.weights for one in chosen])
        return torch.sparse_coo_tensor(places, weights, (len(chosen), self.vocab_size), check_invariants=True)


class LateInteraction:
    """The mean MaxSim of texts (`vectors.similarity`). `outputs` [tokens, size] are those of each text of each pair,
    one after the other."""

    def __init__(self, outputs: Sequence[Tensor]) -> None:
        self._first = [vectors.read(output) for output in outputs[::2]]
        self._second = [vectors.read(output) for output in outputs[1::2]]

    def of_pairs(self) -> Array:
        pairs = zip(self._first, self._second, strict=True)
        return np.array([float(vectors.similarity(first, second)) for first, second in pairs])

    def between(self, firsts: range, seconds: Array) -> Array:
        chosen = [self._second[number] for number in seconds.tolist()]
        starts = np.cumsum([0, *(len(one) for one in chosen[:-1])])
        tokens = torch.cat(chosen).T
        # The cosines of one text with all tokens are in memory at a time.
        lines = [np.maximum.reduceat((self._first[number] @ tokens).numpy(), starts, axis=1) for number in firsts]
        return np.stack([line.mean(0) for line in lines])
