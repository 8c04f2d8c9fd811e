"""The constant answer beside which a training is seen."""

import pytest
from peltier_adapters.spec.tasks import TaskSpec
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.evaluate.majority import Majority


def create(kind: str, labels: tuple[str, ...], gold: list[object]) -> Majority | None:
    task = TaskSpec.model_validate({"type": kind, "labels": labels, "inputs": "single", "max_length": 8})
    return Majority.create(Evaluation({}, [""] * len(gold), gold, gold), task)


def test_the_most_frequent_label_is_answered():
    """With the metrics that the adapter has too."""
    found = create("classification", ("a", "b", "c"), [1, 1, 1, 2])
    assert found is not None
    assert (found.answer, found.share, found.metrics["accuracy"]) == ("b", 0.75, 0.75)
    assert found.metrics["f1_macro"] == pytest.approx((2 * 0.75 / 1.75 + 0) / 2)
    assert found.metrics["matthews"] == 0


def test_the_most_frequent_set_is_answered():
    """Labels together, or none of them."""
    found = create("multilabel", ("a", "b"), [[1, 1], [1, 1], [0, 1]])
    assert found is not None
    assert (found.answer, found.metrics["exact_match"]) == ("a, b", pytest.approx(2 / 3))
    found = create("multilabel", ("a", "b"), [[0, 0], [0, 0], [0, 1]])
    assert found is not None
    assert found.answer == "no label"


def test_numbers_are_answered_by_their_mean():
    """Its squared error is their variance, and it orders nothing."""
    found = create("regression", ("value",), [1.0, 2.0, 6.0])
    assert found is not None
    assert (found.answer, found.share) == ("3", None)
    assert (found.metrics["mse"], found.metrics["pearson"]) == (pytest.approx(14 / 3), 0.0)
