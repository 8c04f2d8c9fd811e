"""What a person is warned of after a training."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from peltier_adapters.spec.tasks import TaskSpec
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.report.caveats import Evidence, Majority, find_caveats

LABELS = ("no", "yes", "odd")
GOOD = [0] * 10 + [1] * 10


def judge(gold, found, history=(0.9, 0.8), *, task_type="classification", metric="accuracy", **metrics):
    """The caveats of these answers; metrics that are not given are those of a perfect adapter."""
    labels = ("value",) if task_type == "regression" else LABELS
    task = TaskSpec(type=task_type, labels=labels, inputs="single", max_length=8)
    values = {"accuracy": 1.0, "exact_match": 1.0, "mse": 0.0} | metrics
    evaluation = Evaluation(values, [f"{row}" for row in range(len(gold))], gold, found)
    return find_caveats(Evidence(task_type, labels, metric, history, evaluation, Majority.create(evaluation, task)))


def test_a_good_training_has_none():
    """Every label is predicted, the answers are right, and the best epoch is not the last."""
    assert judge(GOOD, GOOD) == ()


@pytest.mark.parametrize(
    ("history", "metric", "expected"),
    [
        ((0.5, 0.6, 0.7), "accuracy", "the last of 3 validations is the best by accuracy (0.7)"),
        ((0.7,), "accuracy", None),  # `--epochs 1`: there is nothing to compare it with
        ((0.5, 0.4), "mse", "the last of 2 validations is the best by mse (0.4)"),
        ((31.0, 42.5), "bleu", "the last of 2 validations is the best by bleu (42.5)"),
        ((0.5, 0.7, 0.7), "accuracy", None),  # as good is no better
        ((0.9, 1.0), "accuracy", None),  # nothing is better than perfect
        ((99.0, 100.0), "bleu", None),
        ((0.4, 0.5), "mse", None),
        ((), "accuracy", None),
    ],
)
def test_the_best_epoch_should_not_be_the_last(history: Sequence[float], metric: str, expected: str | None):
    """A later one might be better yet; one sentence, with the flag to give."""
    found = judge(GOOD, GOOD, history, metric=metric)
    if expected is None:
        assert found == ()
    else:
        assert found == (f"{expected}: training may not have converged; train for longer (--epochs).",)


@pytest.mark.parametrize(
    ("history", "metric", "expected"),
    [
        ((0.0, 0.0, 0.0), "bleu", "was never above 0 in 3 validations; the lowest loss chose among equal ones"),
        ((0.0,), "chrf", "was never above 0 in the only validation"),
        ((0.0, -0.1), "matthews", "was never above 0 in 2 validations; the lowest loss chose among equal ones"),
        ((0.5, 0.5), "accuracy", "was 0.5 in all of 2 validations; the lowest loss chose among equal ones"),
        ((1.5, 1.5), "mse", "was 1.5 in all of 2 validations; the lowest loss chose among equal ones"),
        ((0.0, 0.1, 0.0), "f1", None),
        ((0.5,), "accuracy", None),
        ((1.0, 1.0), "accuracy", None),  # nothing is better
        ((100.0, 100.0), "chrf", None),
        ((0.2,), "mse", None),
    ],
)
def test_a_metric_that_did_not_choose_the_epoch_is_named(history: Sequence[float], metric: str, expected: str | None):
    """It never left the value of answers that say nothing, or never changed."""
    found = judge(GOOD, GOOD, history, metric=metric)
    if expected is None:
        assert found == ()
    else:
        advice = "Train for longer (--epochs), raise --learning-rate, or choose by another --metric."
        assert found == (f"the {metric}, which chooses the epoch, {expected}. {advice}",)


def test_the_last_validation_may_be_the_best_of_a_run_that_converged():
    """Its learning rate fell to 0 after its validations had stopped improving."""
    evaluation = Evaluation({"accuracy": 1.0}, ["a", "b"], [0, 1], [0, 1])
    evidence = Evidence("classification", ("no", "yes"), "accuracy", (0.5, 0.6, 0.7), evaluation, None)
    assert find_caveats(evidence) != ()
    assert find_caveats(replace(evidence, has_converged=True)) == ()


def test_a_label_that_is_never_predicted_is_named():
    """Those that validation has alone; a text that is no label is no label's answer."""
    (found,) = judge([*GOOD, 2], [*GOOD, -1])
    assert found.startswith(
        "1 of 3 labels is never predicted on the validation rows ('odd'); train for longer (--epochs)"
    )
    (found,) = judge([[1, 1, 0], [0, 1, 0]] * 5, [[1, 0, 0], [0, 0, 0]] * 5, task_type="multilabel")
    assert "1 of 3 labels is never predicted on the validation rows ('yes')" in found


def test_only_a_few_long_names_are_named():
    """The sentence stays one that is read."""
    labels = [f"{number} {'x' * 250}" for number in range(100)]
    task = TaskSpec(type="classification", labels=tuple(labels), inputs="single", max_length=8)
    evaluation = Evaluation({"accuracy": 0.9}, [""] * 100, list(range(100)), [0] * 100)
    found = find_caveats(
        Evidence("classification", labels, "accuracy", (), evaluation, Majority.create(evaluation, task))
    )
    assert len(found) == 1
    assert "99 of 100 labels are never predicted" in found[0]
    assert " and 94 more)" in found[0]
    assert len(found[0]) < 500


MOSTLY_NO = [0] * 12 + [1] * 8
MOSTLY_TWO = [[1, 0, 1]] * 12 + [[0, 1, 0]] * 8
NUMBERS = [1.0, 3.0] * 10
POOR = "is no better than answering"


@pytest.mark.parametrize(
    ("task_type", "gold", "metric", "value", "expected"),
    [
        ("classification", MOSTLY_NO, "accuracy", 0.6, f"the accuracy of 0.6 {POOR} 'no' to every row (0.6)"),
        # By one row of 20.
        ("classification", MOSTLY_NO, "accuracy", 0.65, "0.65 is within chance of answering 'no' to every row (0.6)"),
        ("classification", MOSTLY_NO, "accuracy", 0.8, None),
        ("classification", [0] * 20, "accuracy", 1.0, None),
        ("multilabel", MOSTLY_TWO, "exact_match", 0.6, "answering 'no, odd' to every row (0.6)"),
        ("multilabel", MOSTLY_TWO, "exact_match", 0.9, None),
        ("regression", NUMBERS, "mse", 0.99, f"the mse of 0.99 {POOR} '2' to every row (1)"),
        ("regression", NUMBERS, "mse", 0.5, None),
    ],
)
def test_the_same_answer_to_every_row_must_be_beaten(task_type, gold, metric, value, expected):
    """By more than one standard error; the sentence has both numbers."""
    found = judge(gold, gold, task_type=task_type, **{metric: value})
    assert len(found) == (expected is not None)
    assert expected is None or expected in found[0]


def test_generated_texts_have_no_answer_to_beat():
    evaluation = Evaluation({"bleu": 0.0}, [""] * 5, [["a"]] * 5, ["b"] * 5)
    assert find_caveats(Evidence("text2text", (), "bleu", (), evaluation, None)) == ()


def create(kind: str, labels: tuple[str, ...], gold: list[object]) -> Majority:
    task = TaskSpec.model_validate({"type": kind, "labels": labels, "inputs": "single", "max_length": 8})
    found = Majority.create(Evaluation({}, [""] * len(gold), gold, gold), task)
    assert found is not None
    return found


def test_the_most_frequent_label_is_answered():
    """With the metrics that the adapter has too."""
    found = create("classification", ("a", "b", "c"), [1, 1, 1, 2])
    assert (found.answer, found.share, found.metrics["accuracy"]) == ("b", 0.75, 0.75)
    assert found.metrics["f1_macro"] == pytest.approx((2 * 0.75 / 1.75 + 0) / 2)
    assert found.metrics["matthews"] == 0


def test_the_most_frequent_set_is_answered():
    """Labels together, or none of them."""
    found = create("multilabel", ("a", "b"), [[1, 1], [1, 1], [0, 1]])
    assert (found.answer, found.metrics["exact_match"]) == ("a, b", pytest.approx(2 / 3))
    found = create("multilabel", ("a", "b"), [[0, 0], [0, 0], [0, 1]])
    assert found.answer == "no label"


def test_numbers_are_answered_by_their_mean():
    """Its squared error is their variance, and it orders nothing."""
    found = create("regression", ("value",), [1.0, 2.0, 6.0])
    assert (found.answer, found.share) == ("3", None)
    assert (found.metrics["mse"], found.metrics["pearson"]) == (pytest.approx(14 / 3), 0.0)
