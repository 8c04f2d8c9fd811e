"""The rows that a report shows as wrong."""

import pytest
import torch
from peltier_adapters.spec.tasks import TaskSpec
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.report.answers import MAX_LABEL_LEN, MAX_MISTAKES, MAX_TEXT_LEN, Mistake


def create_task(kind: str, *labels: str) -> TaskSpec:
    return TaskSpec.model_validate({"type": kind, "labels": labels, "inputs": "single", "max_length": 8})


def test_the_surest_mistakes_come_first():
    """With the probability of the predicted label; right answers are none."""
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 4.0], [5.0, 0.0]])
    verdict = Evaluation({}, ["a", "b", "c", ("d", "e")], [0, 0, 0, 1], [0, 1, 1, 0], scores=logits)
    found = Mistake.create(verdict, create_task("classification", "no", "yes"))
    assert found is not None
    assert [(one.input, one.label, one.answer) for one in found] == [
        (("d", "e"), "yes", "no"), (("c",), "no", "yes"), (("b",), "no", "yes"),
    ]  # fmt: skip
    assert [one.score for one in found] == pytest.approx(logits.softmax(-1).max(-1).values[[3, 2, 1]].tolist())


def test_a_text_that_is_no_label_has_no_score():
    """Written answers come in their own order."""
    verdict = Evaluation({}, ["a", "b"], [0, 1], [-1, 0])
    found = Mistake.create(verdict, create_task("classification", "no", "yes"))
    assert found is not None
    assert [(one.answer, one.score) for one in found] == [("no label", None), ("no", None)]


def test_sets_of_labels_are_compared_whole():
    """One label too many or too few is a mistake; the score is the distance of the worst probability."""
    logits = torch.tensor([[3.0, -3.0], [3.0, 3.0], [-3.0, -9.0]])
    verdict = Evaluation({}, ["a", "b", "c"], [[1, 0], [1, 0], [0, 1]], [[1, 0], [1, 1], [0, 0]], scores=logits)
    found = Mistake.create(verdict, create_task("multilabel", "x", "y"))
    assert found is not None
    assert [(one.input[0], one.label, one.answer) for one in found] == [("c", "y", "no label"), ("b", "x", "x, y")]
    assert [one.score for one in found] == pytest.approx([1 - 1 / (1 + 2.718281828**9), 1 / (1 + 2.718281828**-3)])


def test_numbers_are_shown_by_their_distance():
    """The furthest first."""
    found = Mistake.create(Evaluation({}, ["a", "b", "c"], [1, 2, 3], [1.5, 2, 1]), create_task("regression", "value"))
    assert found is not None
    assert [(one.input[0], one.label, one.answer, one.score) for one in found] == [
        ("c", "3", "1", None), ("a", "1", "1.5", None),
    ]  # fmt: skip


def test_mistakes_are_bounded():
    """In number and in length, whatever the data holds."""
    names = [f"{side} {'y' * 250}" for side in "ab"]
    verdict = Evaluation({}, ["x" * 10**6] * 100, [0] * 100, [1] * 100)
    found = Mistake.create(verdict, create_task("classification", *names))
    assert found is not None
    assert len(found) == MAX_MISTAKES
    assert {len(one.input[0]) for one in found} == {MAX_TEXT_LEN}
    assert {len(one.label) for one in found} == {len(one.answer) for one in found} == {MAX_LABEL_LEN}
    assert found[0].input[0].endswith("x…")
