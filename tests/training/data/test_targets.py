"""The label strings of closed tasks on a T5."""

import pytest
from peltier_adapters.spec.tasks import DecodingSpec, TaskSpec
from peltier_training.data.examples import Example
from peltier_training.data.targets import Numbers, class_targets, gold_targets, gold_texts, number_targets
from peltier_training.errors import TrainingError


def create_task(**changes: object) -> TaskSpec:
    own = {"type": "classification", "labels": ("no", "yes"), "inputs": "single", "max_length": 16}
    own |= {"template": "{text}", "targets": ("0", "1"), "decoding": DecodingSpec(answer="score")}
    return TaskSpec.model_validate(own | changes)


def examples(*labels: object) -> list[Example]:
    return [Example("a", label, f"d:{line}") for line, label in enumerate(labels, 1)]


def test_classes_are_digits_words_or_a_list():
    """Digits are the papers'."""
    assert class_targets("digits", ["no", "yes", "maybe"]) == ("0", "1", "2")
    assert class_targets("words", ["no", "yes"]) == ("no", "yes")
    assert class_targets("never, always", ["no", "yes"]) == ("never", "always")


def test_sts_b_has_26_steps():
    """From 0 to 5 in steps of 0.2, with one decimal (docs/methods.md#sts-b)."""
    targets = number_targets([0.0, 1.3, 5.0], 0.2)
    assert (len(targets), targets[0], targets[1], targets[-1]) == (26, "0.0", "0.2", "5.0")


@pytest.mark.parametrize(
    ("value", "text"), [(1.111, "1.2"), (2.5, "2.4"), (4.75, "4.8"), (0.1, "0.0"), (0.3, "0.4"), (4.9, "4.8")]
)
def test_labels_are_rounded_as_intended(value: float, text: str):
    """docs/methods.md#sts-b: round(5 label) / 5, ties to the even multiple."""
    targets = number_targets([0.0, 5.0], 0.2)
    assert targets[Numbers(targets).nearest(value)] == text == f"{round(value * 5) / 5:.1f}"


@pytest.mark.parametrize(("value", "text"), [(1.111, "1.1"), (2.5, "2.5"), (4.75, "4.8")])
def test_steps_of_a_tenth_are_the_published_code(value: float, text: str):
    """What the authors ran, by mistake (docs/methods.md#sts-b)."""
    targets = number_targets([0.0, 5.0], 0.1)
    assert targets[Numbers(targets).nearest(value)] == text


def test_numbers_reach_from_the_least_to_the_greatest():
    """Negative ones too, with the step's decimals; what lies beyond is the end."""
    targets = number_targets([-1.1, 0.6], 0.25)
    assert targets == ("-1.00", "-0.75", "-0.50", "-0.25", "0.00", "0.25", "0.50")
    assert [targets[Numbers(targets).nearest(value)] for value in (-9.0, 9.0)] == ["-1.00", "0.50"]
    assert number_targets([8, 31], 10.0) == ("10", "20", "30")


def test_steps_can_be_too_many_or_too_few():
    """The sentence has the range and the step."""
    with pytest.raises(TrainingError, match=r"labels from 0 to 1e\+09 have 5000000001 steps of 0\.2, more than 4096"):
        number_targets([0.0, 1e9], 0.2)
    with pytest.raises(TrainingError, match=r"in steps of 0\.2 every label is 1\.0; a regression needs two different"):
        number_targets([1.01, 0.99], 0.2)


def test_numbers_need_no_order():
    """An artifact from elsewhere may list its numbers as it likes."""
    numbers = Numbers(["3", "1", "2"])
    assert [numbers.nearest(value) for value in (0.0, 1.2, 1.9, 7.0, 3.0)] == [1, 1, 2, 0, 0]


def test_gold_is_what_should_be_written():
    """The target of the label, the nearest number, the text itself."""
    assert gold_texts(create_task(targets=("bad", "good")), examples("yes", "no")) == ["good", "bad"]
    numbers = create_task(type="regression", labels=("value",), targets=("0.0", "0.2", "0.4"))
    assert gold_targets(numbers, examples(0.11, "0.4", 7)) == [1, 2, 2]
    free = create_task(type="text2text", labels=(), targets=(), decoding=DecodingSpec(answer="generate"))
    assert gold_texts(free, examples("a film", 7)) == ["a film", "7"]


@pytest.mark.parametrize("label", ["", " ", None, ["a"]])
def test_an_empty_text_is_no_target(label: object):
    free = create_task(type="text2text", labels=(), targets=(), decoding=DecodingSpec(answer="generate"))
    with pytest.raises(TrainingError, match=r"d:2: label .* is not a label; it must be a text or a number"):
        gold_texts(free, examples("a", label))
