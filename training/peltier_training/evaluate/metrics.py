"""Metrics by task type: those of the client, on arrays. `text_examination` has those of generated texts."""

from collections.abc import Sequence

import numpy as np
from peltier_adapters.answers.tags import join_tags
from peltier_adapters.spec.tasks import TaskType
from peltier_client.quality.metrics import choose_several, classify, correlate, rank_documents, regress, score_entities

from peltier_training.evaluate.similarity import Array, Cosines, Similarity

_CHUNK_ROWS = 128


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
