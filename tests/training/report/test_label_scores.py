"""Precision, recall and F1 of each label, against scikit-learn's."""

import numpy as np
import pytest
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.report.answers import Confusion, LabelCounts
from peltier_training.report.label_scores import LabelScores
from sklearn.metrics import precision_recall_fscore_support


def judged(gold: list[object], found: list[object]) -> Evaluation:
    return Evaluation({}, [""] * len(gold), gold, found)


def test_classes_have_scikit_learns_scores():
    """A text that is no label counts against its own label's recall and for nothing else."""
    draw = np.random.default_rng(0)
    gold, found = draw.integers(0, 3, 200).tolist(), draw.integers(-1, 3, 200).tolist()
    scores = LabelScores.of_confusion(Confusion.create(judged(gold, found), ["a", "b", "c"]))
    expected = precision_recall_fscore_support(gold, found, labels=[0, 1, 2])
    assert (
        pytest.approx(np.array(expected))
        == np.array([(one.precision, one.recall, one.f1, one.rows) for one in scores]).T
    )


def test_labels_of_sets_have_scikit_learns_scores():
    """Each label is a question of its own."""
    draw = np.random.default_rng(0)
    gold, found = draw.integers(0, 2, (50, 3)), draw.integers(0, 2, (50, 3))
    counts = LabelCounts.create(judged(gold.tolist(), found.tolist()), ["a", "b", "c"])
    expected = precision_recall_fscore_support(gold, found)
    scores = LabelScores.of_label_counts(counts)
    assert (
        pytest.approx(np.array(expected))
        == np.array([(one.precision, one.recall, one.f1, one.rows) for one in scores]).T
    )


def test_what_is_undefined_is_none():
    """Never predicted, without rows, neither."""
    scores = LabelScores.of_confusion(Confusion.create(judged([0, 0, 1], [0, 2, 0]), ["a", "b", "c", "d"]))
    assert [(one.precision, one.recall, one.f1) for one in scores] == [
        (0.5, 0.5, 0.5), (None, 0.0, 0.0), (0.0, None, 0.0), (None, None, None),
    ]  # fmt: skip
