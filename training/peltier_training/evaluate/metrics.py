"""Metrics by task type: those of the client, on arrays. `texts` has those of generated texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from peltier_adapters.answers import terms, vectors
from peltier_adapters.answers.tags import join_tags
from peltier_adapters.spec.tasks import TaskType
from peltier_client.quality.metrics import choose_several, classify, correlate, rank_documents, regress, score_entities
from torch import Tensor

Array = np.ndarray[Any, Any]
_CHUNK_ROWS = 128


class Cosines:
    """The cosines of vectors [pairs, 2, size]: `of_pairs`, [pairs], and `between` the first texts of some pairs and the
    second texts of others, [firsts, seconds]."""

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


# Of the first and the second texts of pairs, in any order and scale.
Similarity = Cosines | TermProducts | LateInteraction


def compute(kind: TaskType, logits: Array, targets: Array) -> dict[str, float]:
    """All metrics of a task type; `logits` [rows, labels], targets as `Labels.targets` gives them."""
    match kind:
        case "classification":
            return classification(logits.argmax(-1), targets, logits.shape[-1])
        case "multilabel":
            return choose_several(_sets(targets > 0), _sets(logits > 0), range(logits.shape[-1]))[0]
        case "regression":
            return regression(logits.reshape(-1), targets)
        case "embedding":
            return embedding(Cosines(logits), targets)
        case "ranking":  # targets [rows, 2] are the relevance of a document and the number of its query
            return rank_documents(targets[:, 1].tolist(), targets[:, 0].tolist(), logits.reshape(-1).tolist())[0]
    raise AssertionError("texts, spans and tags have metrics of their own")


def classification(found: Array, targets: Array, num_labels: int) -> dict[str, float]:
    """The metrics of label positions [rows]; a found -1 is a wrong answer that is no label."""
    answers = [None if label < 0 else label for label in found.tolist()]
    return classify(targets.tolist(), answers, range(num_labels))[0]


def regression(found: Array, targets: Array) -> dict[str, float]:
    """The metrics of numbers [rows]."""
    return regress(targets.tolist(), found.tolist())


def tagging(found: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, float]:
    """F1, precision and recall of the whole entities in the tags of all texts together."""
    return score_entities(*([frozenset(join_tags(tags)) for tags in rows] for rows in (gold, found)))[0]


def _sets(chosen: Array) -> list[frozenset[int]]:
    return [frozenset(np.flatnonzero(row).tolist()) for row in chosen]


def embedding(similarity: Similarity, targets: Array) -> dict[str, float]:
    """Of pairs with scores [pairs], the correlations of their similarities with the scores. Of pairs that belong
    together, with the numbers [pairs, 2] of their texts, the mean reciprocal rank of the own second text among all
    different second texts by similarity (`mrr`), and the share of pairs in which it is the first (`accuracy`)."""
    if targets.ndim == 1:
        return correlate(targets.tolist(), similarity.of_pairs().tolist())
    found = ranks(similarity, targets)
    return {"mrr": float((1 / found).mean()), "accuracy": float((found == 1).mean())}


def pair_answers(similarity: Similarity, targets: Array) -> Array:
    """The similarity of each pair with a score, or the rank of the second text of each pair that belongs together."""
    return similarity.of_pairs() if targets.ndim == 1 else ranks(similarity, targets)


def ranks(similarity: Similarity, numbers: Array) -> Array:
    """The rank [pairs], from 1, of each pair's second text among the different second texts of all pairs, without those
    that belong to its first text in other pairs. Texts that are as similar count as if they came before it."""
    _, places, own = np.unique(numbers[:, 1], return_index=True, return_inverse=True)
    owners = _owners(numbers[:, 0], own)
    found = np.empty(len(numbers), np.int64)
    for start in range(0, len(numbers), _CHUNK_ROWS):
        rows = range(start, min(start + _CHUNK_ROWS, len(numbers)))
        for row, line in zip(rows, similarity.between(rows, places), strict=True):
            best = line[own[row]]
            line[owners[numbers[row, 0]]] = -np.inf
            found[row] = 1 + int((line >= best).sum())
    return found


def _owners(firsts: Array, seconds: Array) -> dict[int, list[int]]:
    owners: dict[int, list[int]] = {}
    for first, second in zip(firsts.tolist(), seconds.tolist(), strict=True):
        owners.setdefault(first, []).append(second)
    return owners
