"""The metrics of embeddings."""

import numpy as np
import pytest
from peltier_training.evaluate.embedding_metrics import embedding, ranks


def test_cosines_are_correlated_with_scores() -> None:
    """Whatever the lengths of the vectors; the scale of the scores does not matter."""
    angles, lengths = np.array([0.1, 0.9, 0.5, 1.3]), np.array([3.0, 0.1, 20.0, 1.0])
    second = np.stack([np.cos(angles), np.sin(angles)], 1) * lengths[:, None]
    vectors = np.stack([np.tile([2.0, 0.0], (4, 1)), second], 1)
    assert embedding(vectors, np.array([5.0, 2.0, 4.0, 0.0]))["spearman"] == pytest.approx(1.0)
    assert embedding(vectors, np.zeros(4)) == {"pearson": 0.0, "spearman": 0.0}


def test_ranks_are_among_different_second_texts() -> None:
    """Equal texts are one candidate, and texts that belong to the first text are none beside its own."""
    unit = np.eye(4)
    vectors = np.stack([
        np.stack([unit[0] + 0.9 * unit[1], unit[1]]),  # text 10 is nearer to the first text than its own
        np.stack([unit[0], unit[0]]),
        np.stack([unit[2], unit[2]]),
        np.stack([unit[2], unit[2] + unit[3]]),  # its first text has another second text, 12
        np.stack([unit[3], unit[0]]),  # an equal second text, which all others are as far from
    ])  # fmt: skip
    numbers = np.array([[0, 11], [1, 10], [2, 12], [2, 13], [3, 10]])
    assert ranks(vectors, numbers).tolist() == [2, 1, 1, 1, 4]
    found = embedding(vectors, numbers)
    assert found == pytest.approx({"mrr": (0.5 + 3 + 0.25) / 5, "accuracy": 0.6})
