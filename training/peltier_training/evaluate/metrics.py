"""Metrics by task type: those of the client, on arrays. `text_examination` has those of generated texts."""

from collections.abc import Sequence

import numpy as np
from peltier_adapters.answers.tags import join_tags
from peltier_adapters.spec.tasks import TaskType
from peltier_client.bulk.quality import choose_several, classify, rank_documents, regress, score_entities

from peltier_training.config.metric_names import BEST, LOWER_IS_BETTER, NAMES
from peltier_training.evaluate.embedding_metrics import Array, embedding

__all__ = ["BEST", "LOWER_IS_BETTER", "NAMES", "classification", "compute", "regression", "tagging"]


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
            return embedding(logits, targets)
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
