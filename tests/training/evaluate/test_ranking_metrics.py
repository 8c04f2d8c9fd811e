"""Metrics of ranking against values worked out by hand."""

import math

import numpy as np
import pytest
from peltier_training.evaluate import metrics

QUERY = np.array([0.0, 0.0, 0.0, 1.0, 1.0])


def test_metrics_are_means_over_queries():
    """The relevant document of the first query is second, that of the other first. The rows of a query need not be
    neighbours."""
    scores, relevance = np.array([0.9, 0.5, 0.1, 2.0, -1.0]), np.array([0.0, 1.0, 0.0, 1.0, 0.0])
    wanted = {"mrr": (1 / 2 + 1) / 2, "ndcg@10": (1 / math.log2(3) + 1) / 2}
    order = np.array([3, 0, 4, 2, 1])
    targets = np.stack([relevance, QUERY], 1)
    assert metrics.compute("ranking", scores[:, None], targets) == pytest.approx(wanted)
    assert metrics.compute("ranking", scores[order, None], targets[order]) == pytest.approx(wanted)


def test_grades_are_gains():
    """Grades 2 and 1, ranked in the wrong order: (1 + 2 / log2(3)) / (2 + 1 / log2(3))."""
    targets = np.stack([np.array([1.0, 2.0, 0.0]), np.zeros(3)], 1)
    found = metrics.compute("ranking", np.array([[0.8], [0.7], [0.1]]), targets)
    gain = (1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3))
    assert found == pytest.approx({"mrr": 1.0, "ndcg@10": gain})


def test_equal_scores_are_no_merit():
    """A constant ranks the relevant document of three last."""
    targets = np.stack([np.array([1.0, 0.0, 0.0]), np.zeros(3)], 1)
    assert metrics.compute("ranking", np.zeros((3, 1)), targets)["mrr"] == pytest.approx(1 / 3)


def test_queries_without_a_relevant_document_are_left_out():
    """They would be 0 for every ranking; without any query, the metrics are 0."""
    relevance = np.array([0.0, 0.0, 0.0, 1.0, 0.0])
    scores = np.array([[3.0], [2.0], [1.0], [2.0], [1.0]])
    assert metrics.compute("ranking", scores, np.stack([relevance, QUERY], 1)) == {"mrr": 1.0, "ndcg@10": 1.0}
    assert metrics.compute("ranking", scores, np.stack([0 * relevance, QUERY], 1)) == {"mrr": 0.0, "ndcg@10": 0.0}
