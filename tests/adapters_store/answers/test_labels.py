"""From logits to answers."""

import pytest
import torch
from peltier_adapters.answers.labels import answer
from peltier_adapters.spec.tasks import TaskSpec

LABELS = ("bad", "fair", "good")
LOGITS = torch.tensor([1.0, -2.0, 3.0])


def _task(kind: str, labels: tuple[str, ...] = LABELS) -> TaskSpec:
    return TaskSpec(type=kind, labels=labels, inputs="single", max_length=8)


def test_classification_is_a_softmax_in_label_order():
    """Probabilities sum to one in the task's order; the label is the most probable one."""
    found = answer(_task("classification"), LOGITS)
    assert list(found["scores"]) == list(LABELS)
    assert sum(found["scores"].values()) == pytest.approx(1)
    assert (found["label"], found["score"]) == ("good", found["scores"]["good"])
    assert list(found) == ["label", "score", "scores"]


def test_multilabel_is_a_sigmoid_each():
    """Labels with a probability of at least one half are chosen, in label order; there may be none."""
    found = answer(_task("multilabel"), LOGITS)
    assert found["labels"] == ["bad", "good"]
    assert found["scores"]["fair"] == pytest.approx(0.1192, abs=1e-4)
    assert list(found) == ["labels", "scores"]
    assert answer(_task("multilabel"), torch.tensor([-1.0, -1.0, -1.0]))["labels"] == []
    assert answer(_task("multilabel"), torch.tensor([0.0, -1.0, -1.0]))["labels"] == ["bad"]


def test_regression_is_the_value():
    found = answer(_task("regression", ("score",)), torch.tensor([-1234.5]))
    assert found == {"value": -1234.5}


def test_raw_scores_are_logits():
    """The label is the same and the numbers are logits; multilabel still chooses by probability."""
    found = answer(_task("classification"), LOGITS, raw_scores=True)
    assert (found["label"], found["score"]) == ("good", 3.0)
    assert list(found["scores"].values()) == [1.0, -2.0, 3.0]
    assert answer(_task("multilabel"), LOGITS, raw_scores=True)["labels"] == ["bad", "good"]


@pytest.mark.parametrize(
    ("top_k", "kept"), [(1, ["good"]), (2, ["bad", "good"]), (3, list(LABELS)), (99, list(LABELS))]
)
def test_top_k_keeps_the_best_in_label_order(top_k: int, kept: list[str]):
    """A larger k than the number of labels keeps all of them."""
    found = answer(_task("classification"), LOGITS, top_k=top_k)
    assert list(found["scores"]) == kept
    assert found["label"] == "good"
