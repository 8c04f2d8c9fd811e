"""From label columns to targets."""

import math
from typing import Any

import pytest
from peltier_training.data.examples import Example
from peltier_training.data.labels import Labels, find_labels
from peltier_training.errors import TrainingError


def examples(*labels: Any) -> list[Example]:
    """One example a label; the text does not matter."""
    return [Example("good", label, f"data.jsonl:{line}") for line, label in enumerate(labels, 1)]


def test_names_are_the_distinct_values():
    """As texts, in alphabetical order."""
    assert find_labels("classification", examples("no", "yes", "no", "maybe"), None).names == ("maybe", "no", "yes")


def test_integer_labels_are_sorted_as_numbers():
    """10 comes after 9, whether the file holds numbers or their texts; other texts follow."""
    assert find_labels("classification", examples(10, "9", 1, 10, "other"), None).names == ("1", "9", "10", "other")


def test_integers_are_positions_in_given_names():
    """`--labels no,yes` names the labels 0 and 1, as numbers and as texts; a name itself also counts."""
    labels = find_labels("classification", examples(0, 1), ("no", "yes"))
    assert labels.names == ("no", "yes")
    assert [labels.by_name(one).label for one in examples(1, "0", "yes", 2)] == ["yes", "no", "yes", "2"]


def test_an_integer_is_no_position_where_integers_are_names():
    """With the labels 3 and 5, a 1 in the validation file is unknown; it is not the second label."""
    labels = find_labels("classification", examples(3, 5), None)
    assert labels.targets(examples(5, 3)).tolist() == [1, 0]
    with pytest.raises(TrainingError, match=r"data\.jsonl:1: label '1' is not one of the task's 2 labels: 3, 5"):
        labels.targets([labels.by_name(one) for one in examples(1)])


@pytest.mark.parametrize("label", ["maybe", 1, 2, -1, 1.5, "9" * 5000])
def test_a_label_outside_the_list_is_refused_with_its_line(label: Any):
    """Validation data may not bring a label that training does not have."""
    with pytest.raises(TrainingError, match=r"data\.jsonl:2: label '.*' is not one of the task's 2 labels: no, yes"):
        Labels("classification", ("no", "yes")).targets(examples("no", label))


@pytest.mark.parametrize("label", [None, {"a": 1}, ["a"], "", " "])
def test_what_cannot_be_a_label_is_refused_with_its_line(label: Any):
    """null never becomes a label named None."""
    with pytest.raises(TrainingError, match=r"data\.jsonl:2: label .* is not a label; it must be a text or a number"):
        find_labels("classification", examples("no", label), None)


def test_multilabel_takes_lists():
    """As they are, and as the JSON of a cell; no label at all is an answer too."""
    labels = find_labels("multilabel", examples(["b", "a"], '["c", "a"]', [], ""), None)
    assert labels.names == ("a", "b", "c")
    wanted = [[1, 1, 0], [1, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert labels.targets(examples(["b", "a"], '["c", "a"]', [], "")).tolist() == wanted


def test_multilabel_integers_are_positions_too():
    """In lists and in texts."""
    labels = Labels("multilabel", ("x", "y", "z"))
    assert [labels.by_name(one).label for one in examples([0, 2], "[1,2]", ["y", 3])] == [
        ("x", "z"),
        ("y", "z"),
        ("y", "3"),
    ]


def test_a_text_of_two_readings_is_refused_with_its_line():
    """It is neither taken for one label nor split."""
    with pytest.raises(TrainingError, match=r"data\.jsonl:2: label 'a\|b' may be one label, or 2 labels 'a', 'b'"):
        find_labels("multilabel", examples(["a"], "a|b"), None)


def test_check_says_what_targets_would():
    """Row by row and without torch: of each type a label that is none of the task's."""
    bad: list[tuple[Any, tuple[str, ...], Any]] = [
        ("classification", ("no", "yes"), "maybe"),
        ("classification", (), ["no"]),
        ("multilabel", ("no", "yes"), ["no", "maybe"]),
        ("regression", ("value",), "high"),
        ("text2text", (), None),
    ]
    for kind, names, label in bad:
        with pytest.raises(TrainingError, match=r"data\.jsonl:1: label "):
            Labels(kind, names).check(examples(label)[0])
    Labels("classification", ("no", "yes")).check(examples("yes")[0])
    Labels("multilabel", ()).check(examples(["anything"])[0])


def test_regression_takes_numbers_and_their_texts():
    """One output called value."""
    labels = find_labels("regression", examples(1, "2.5", -3e2), None)
    assert labels.names == ("value",)
    assert labels.targets(examples(1, "2.5", -3e2)).tolist() == [1.0, 2.5, -300.0]


@pytest.mark.parametrize("label", ["high", None, [1], math.nan, "inf", 1e39])
def test_regression_refuses_what_is_no_float32(label: Any):
    """NaN, infinity and what float32 cannot hold included."""
    with pytest.raises(TrainingError, match=r"data\.jsonl:2: label .* is not a finite number, which regression needs"):
        Labels("regression", ("value",)).targets(examples(1.0, label))


@pytest.mark.parametrize(
    ("kind", "labels", "names", "reason"),
    [
        ("classification", ["a", "a"], None, "classification needs at least 2 labels; there are 1: a"),
        ("classification", ["a"], ("a",), "classification needs at least 2 labels; there are 1: a"),
        ("classification", ["a", "b"], ("a", "b", "a"), "the label names a, b, a must be distinct and not empty"),
        ("classification", ["a", "b"], ("a", ""), "the label names a,  must be distinct and not empty"),
        ("multilabel", [[], ""], None, "multilabel needs at least 1 labels; there are 0: "),
        ("regression", [1.0], ("a",), "regression has no label names"),
    ],
)
def test_impossible_label_sets_are_refused(kind: Any, labels: list[Any], names: Any, reason: str):
    """A single class, doubled or empty names, no label at all, names for a number."""
    with pytest.raises(TrainingError) as refused:
        find_labels(kind, examples(*labels), names)
    assert str(refused.value) == reason


def test_a_ranking_numbers_its_queries():
    """Targets are the relevance of a document and the number of its query, whose rows need not be neighbours."""
    rows = [Example((query, "x"), label, "data.jsonl:1") for query, label in (("a", 1), ("b", "0"), ("a", 2.5))]
    assert find_labels("ranking", rows, None).names == ("score",)
    assert Labels("ranking", ("score",)).targets(rows).tolist() == [[1.0, 0.0], [0.0, 1.0], [2.5, 0.0]]


@pytest.mark.parametrize(
    ("label", "words"),
    [(-1, "label -1 is negative; a document's relevance is not"), ("no", "label 'no' is not a finite number")],
)
def test_a_relevance_is_a_number_from_zero(label: Any, words: str):
    """The sentence has the line of the row."""
    with pytest.raises(TrainingError, match=f"data.jsonl:3: {words}"):
        Labels("ranking", ("score",)).check(Example(("a", "b"), label, "data.jsonl:3"))
