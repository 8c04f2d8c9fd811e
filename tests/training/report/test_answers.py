"""Answers next to what is right."""

import numpy as np
import pytest
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.report.answers import Confusion, LabelCounts, Residuals, Sample


def judged(gold: list[object], found: list[object]) -> Evaluation:
    return Evaluation({}, [f"input {number}" for number in range(len(gold))], gold, found)


def test_a_confusion_counts_labels_by_answers():
    """Rows are labels, columns answers; a text that is no label is apart, and a label without rows stays."""
    found = Confusion.create(judged([0, 0, 1, 1, 1], [0, 1, 1, -1, 1]), ["a", "b", "c"])
    assert found.matrix == ((1, 1, 0), (0, 2, 0), (0, 0, 0))
    assert found.unknown == (0, 1, 0)


def test_labels_are_counted_apart():
    """Each label of a multilabel task: right, wrongly given, missed."""
    found = LabelCounts.create(judged([[1, 0], [1, 1], [0, 0]], [[1, 1], [0, 1], [0, 1]]), ["a", "b"])
    assert [(one.label, one.right, one.extra, one.missed) for one in found] == [("a", 1, 0, 1), ("b", 1, 2, 0)]


def test_residuals_are_answers_minus_labels():
    """Mean, standard deviation and quantiles are of all rows, points of some."""
    gold = np.linspace(0, 5, 2500)
    found = Residuals.create(judged([*gold], [*(gold + np.sin(gold))]))
    assert (found.mean, found.sd) == (pytest.approx(np.sin(gold).mean()), pytest.approx(np.sin(gold).std()))
    assert found.quantiles["0.5"] == pytest.approx(np.median(np.sin(gold)))
    assert (found.rows, len(found.gold), len(found.found)) == (2500, 1000, 1000)


def test_samples_are_spread_over_all_questions():
    """Of twenty eight are shown, the first among them, each with its references."""
    verdict = judged([[f"right {number}"] for number in range(20)], [f"text {number}" for number in range(20)])
    shown = Sample.create(verdict)
    assert [one.text for one in shown] == [f"text {number}" for number in (0, 2, 5, 7, 10, 12, 15, 17)]
    assert (shown[1].input, shown[1].references) == ("input 2", ("right 2",))
