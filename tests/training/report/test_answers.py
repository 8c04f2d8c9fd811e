"""Answers next to what is right."""

import numpy as np
import pytest
import torch
from peltier_adapters.spec.tasks import TaskSpec
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.report.answers import (
    MAX_LABEL_LEN,
    MAX_MISTAKES,
    MAX_TEXT_LEN,
    Confusion,
    LabelCounts,
    LabelScores,
    Mistake,
    Residuals,
    Sample,
)
from sklearn.metrics import precision_recall_fscore_support


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


def test_labels_have_scikit_learns_scores():
    """A text that is no label counts against its own label's recall and for nothing else."""
    draw, names = np.random.default_rng(0), ["a", "b", "c"]
    gold, found = draw.integers(0, 3, 200), draw.integers(-1, 3, 200)
    classes = LabelScores.of_confusion(Confusion.create(judged(gold.tolist(), found.tolist()), names))
    several, chosen = draw.integers(0, 2, (50, 3)), draw.integers(0, 2, (50, 3))
    sets = LabelScores.of_label_counts(LabelCounts.create(judged(several.tolist(), chosen.tolist()), names))
    for scores, expected in (
        (classes, precision_recall_fscore_support(gold, found, labels=[0, 1, 2])),
        (sets, precision_recall_fscore_support(several, chosen)),
    ):
        values = np.array([(one.precision, one.recall, one.f1, one.rows) for one in scores]).T
        assert pytest.approx(np.array(expected)) == values


def test_what_is_undefined_is_none():
    scores = LabelScores.of_confusion(Confusion.create(judged([0, 0, 1], [0, 2, 0]), ["a", "b", "c", "d"]))
    assert [(one.precision, one.recall, one.f1) for one in scores] == [
        (0.5, 0.5, 0.5), (None, 0.0, 0.0), (0.0, None, 0.0), (None, None, None),
    ]  # fmt: skip


def test_a_sample_has_as_many_references_as_a_server_takes():
    """An input that occurs in hundreds of rows has the first of their texts."""
    verdict = Evaluation({}, ["a"], [tuple(map(str, range(300)))], ["b"])
    assert Sample.create(verdict)[0].references == tuple(map(str, range(256)))


def create_task(kind: str, *labels: str) -> TaskSpec:
    return TaskSpec.model_validate({"type": kind, "labels": labels, "inputs": "single", "max_length": 8})


def mistakes_of(evaluation: Evaluation, task: TaskSpec) -> tuple[Mistake, ...]:
    found = Mistake.create(evaluation, task)
    assert found is not None
    return found


def test_the_surest_mistakes_come_first():
    """With the probability of the predicted label; right answers are none."""
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 4.0], [5.0, 0.0]])
    verdict = Evaluation({}, ["a", "b", "c", ("d", "e")], [0, 0, 0, 1], [0, 1, 1, 0], scores=logits)
    found = mistakes_of(verdict, create_task("classification", "no", "yes"))
    assert [(one.input, one.label, one.answer) for one in found] == [
        (("d", "e"), "yes", "no"), (("c",), "no", "yes"), (("b",), "no", "yes"),
    ]  # fmt: skip
    assert [one.score for one in found] == pytest.approx(logits.softmax(-1).max(-1).values[[3, 2, 1]].tolist())


def test_a_text_that_is_no_label_has_no_score():
    """Written answers come in their own order."""
    verdict = Evaluation({}, ["a", "b"], [0, 1], [-1, 0])
    found = mistakes_of(verdict, create_task("classification", "no", "yes"))
    assert [(one.answer, one.score) for one in found] == [("no label", None), ("no", None)]


def test_sets_of_labels_are_compared_whole():
    """One label too many or too few is a mistake; the score is the distance of the worst probability."""
    logits = torch.tensor([[3.0, -3.0], [3.0, 3.0], [-3.0, -9.0]])
    verdict = Evaluation({}, ["a", "b", "c"], [[1, 0], [1, 0], [0, 1]], [[1, 0], [1, 1], [0, 0]], scores=logits)
    found = mistakes_of(verdict, create_task("multilabel", "x", "y"))
    assert [(one.input[0], one.label, one.answer) for one in found] == [("c", "y", "no label"), ("b", "x", "x, y")]
    assert [one.score for one in found] == pytest.approx([1 - 1 / (1 + 2.718281828**9), 1 / (1 + 2.718281828**-3)])


def test_numbers_are_shown_by_their_distance():
    found = mistakes_of(Evaluation({}, ["a", "b", "c"], [1, 2, 3], [1.5, 2, 1]), create_task("regression", "value"))
    assert [(one.input[0], one.label, one.answer, one.score) for one in found] == [
        ("c", "3", "1", None), ("a", "1", "1.5", None),
    ]  # fmt: skip


def test_mistakes_are_bounded():
    """In number and in length, whatever the data holds."""
    names = [f"{side} {'y' * 250}" for side in "ab"]
    verdict = Evaluation({}, ["x" * 10**6] * 100, [0] * 100, [1] * 100)
    found = mistakes_of(verdict, create_task("classification", *names))
    assert len(found) == MAX_MISTAKES
    assert {len(one.input[0]) for one in found} == {MAX_TEXT_LEN}
    assert {len(one.label) for one in found} == {len(one.answer) for one in found} == {MAX_LABEL_LEN}
    assert found[0].input[0].endswith("x…")
