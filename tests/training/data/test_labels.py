"""From label columns to targets."""

import math
import re
from contextlib import nullcontext
from typing import Any

import pytest
from peltier_adapters.spec.text_rules import label_problem
from peltier_training.data.examples import Example
from peltier_training.data.gold import GoldEntity, Tagged
from peltier_training.data.labels import Labels, check_separator, find_labels, read_label_cell
from peltier_training.errors import TrainingError


def examples(*labels: Any) -> list[Example]:
    """One example a label; the text does not matter."""
    return [Example("good", label, f"data.jsonl:{line}") for line, label in enumerate(labels, 1)]


@pytest.mark.parametrize(
    ("values", "names"),
    [(["no", "yes", "no", "maybe"], ("maybe", "no", "yes")), ([10, "9", 1, 10, "other"], ("1", "9", "10", "other"))],
)
def test_names_are_the_distinct_values(values: list[Any], names: tuple[str, ...]):
    """As texts, in alphabetical order; integers as numbers before them, whether the file holds numbers or texts."""
    assert find_labels("classification", examples(*values), None).names == names


def test_integers_are_positions_in_given_names():
    """`--labels no,yes` names the labels 0 and 1, as numbers and as texts; a name itself also counts."""
    labels = find_labels("classification", examples(0, 1), ("no", "yes"))
    assert labels.names == ("no", "yes")
    assert [labels.read(one, positions=True).label for one in examples(1, "0", "yes", 2)] == ["yes", "no", "yes", "2"]


def test_an_integer_is_no_position_where_integers_are_names():
    """With the labels 3 and 5, a 1 in the validation file is unknown; it is not the second label."""
    labels = find_labels("classification", examples(3, 5), None)
    assert labels.targets(examples(5, 3)).tolist() == [1, 0]
    with pytest.raises(TrainingError, match=r"data\.jsonl:1: label '1' is not one of the task's 2 labels: 3, 5"):
        labels.targets([labels.read(one, positions=True) for one in examples(1)])


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
    """In lists and in texts; one beyond the labels is a label."""
    labels = Labels("multilabel", ("x", "y", "z"))
    read = [labels.read(one, positions=True).label for one in examples([0, 2], "[1,2]", ["y", 3])]
    assert read == [("x", "z"), ("y", "z"), ("y", "3")]


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


@pytest.mark.parametrize("label", ["high", None, [1], math.nan, "inf", 1e39, 10**400])
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
    with pytest.raises(TrainingError, match=f"data.jsonl:3: {words}"):
        Labels("ranking", ("score",)).check(Example(("a", "b"), label, "data.jsonl:3"))


READ: list[tuple[Any, str | None, tuple[str, ...]]] = [
    (["food", "price"], None, ("food", "price")),
    (["food", "price"], "|", ("food", "price")),
    (["food, drink"], None, ("food, drink",)),
    ([0, 2], None, ("0", "2")),
    ([], None, ()),
    ('["food", "price"]', None, ("food", "price")),
    (' ["food"] ', None, ("food",)),
    ("[0, 2]", None, ("0", "2")),
    ("[]", None, ()),
    ("food", None, ("food",)),
    (3, None, ("3",)),
    ("", None, ()),
    ("food|price", "|", ("food", "price")),
    (" food ; price", ";", ("food", "price")),
    ("food, drink|price", "|", ("food, drink", "price")),
    ("food", "|", ("food",)),
    ("", "|", ()),
    ("0::2", "::", ("0", "2")),
]


@pytest.mark.parametrize(("cell", "separator", "labels"), READ)
def test_a_cell_of_one_reading_is_read(cell: Any, separator: str | None, labels: tuple[str, ...]):
    """Lists, texts that hold a JSON list, texts split at the separator, and single labels."""
    assert read_label_cell(cell, separator) == labels


REFUSED: list[tuple[Any, str | None, str]] = [
    (float("nan"), None, "label nan is not a label; it must be a text or a number"),
    (["food", float("inf")], "|", "label inf is not a label"),
    (
        "food|price",
        None,
        r"'food\|price' may be one label, or 2 labels 'food', 'price' separated by '\|'; write a JSON li",
    ),
    ("food;price", None, "or 2 labels 'food', 'price' separated by ';'; .* give --label-separator ';'"),
    ("food, price", None, "or 2 labels 'food', 'price' separated by ','"),
    ("['food', 'price']", None, "may be one label, or a list that is not JSON"),
    ('["food"', None, "may be one label, or a list that is not JSON"),
    ('["food", "price"]', "|", "may be the JSON list of 2 labels 'food', 'price', or 1 label .* separated by '|'"),
    ('["food|drink"]', "|", "may be the JSON list of 1 label 'food|drink', or 2 labels"),
    ("food||price", "|", r"'food\|\|price' has an empty label at a separator '\|'"),
    ("food|", "|", "has an empty label at a separator"),
    (None, None, "label None is not a label; it must be a text or a number"),
    (["food", None], None, "label None is not a label"),
    (["food", ""], None, "label '' is not a label"),
    ([["food"]], None, r"label \['food'\] is not a label"),
    ({"food": 1}, "|", "is not a label"),
]


@pytest.mark.parametrize(("cell", "separator", "reason"), REFUSED)
def test_a_cell_of_two_readings_is_refused(cell: Any, separator: str | None, reason: str):
    with pytest.raises(TrainingError, match=reason):
        read_label_cell(cell, separator)


def test_a_known_label_is_one_label():
    assert read_label_cell("food, drink", None, ("food, drink", "price")) == ("food, drink",)


def test_a_long_cell_is_cut_in_the_sentence():
    """A text column in the place of the label column leaves a sentence that can be read."""
    with pytest.raises(TrainingError) as refused:
        read_label_cell("word, " * 1000)
    assert "…" in str(refused.value)


@pytest.mark.parametrize("separator", ["", "a", "1", "[", '"', "x|"])
def test_a_separator_is_no_letter(separator: str):
    with pytest.raises(TrainingError, match=r"label separator .* is invalid"):
        check_separator(separator)
    check_separator("|")
    check_separator(None)


@pytest.mark.parametrize("label", ["a\x1bb", "x" * 300, "two\nlines", "\u202eright"])
@pytest.mark.parametrize("kind", ["classification", "multilabel"])
def test_a_label_that_no_artifact_may_have_is_refused_with_its_row(kind, label):
    """By the rule of artifacts, before any weight is read; so is a name that was given."""
    problem = re.escape(label_problem(label))
    row = examples([label] if kind == "multilabel" else label)[0]
    with pytest.raises(TrainingError, match=f"^{row.where}: label '.*' {problem}$"):
        Labels(kind, ()).check(row)
    with pytest.raises(TrainingError, match=f"^the label name '.*' {problem}$"):
        find_labels(kind, (), ["good", label])


def test_the_tags_of_an_entity_are_labels():
    """Its label has room for the prefix of a tag."""
    for length, is_refused in ((254, False), (255, True)):
        row = Example("text", Tagged((GoldEntity(0, 4, "x" * length),)), "rows:1")
        with pytest.raises(TrainingError, match=r"^rows:1: label 'B-x.*257") if is_refused else nullcontext():
            Labels("token-classification", ()).check(row)


def test_a_target_text_may_have_lines_and_any_length():
    """It is no label, but Unicode text nevertheless."""
    Labels("text2text", ()).check(examples("two\nlines" * 100)[0])
    with pytest.raises(TrainingError, match=r"contains U\+D800, half of a character"):
        Labels("text2text", ()).check(examples("\ud800")[0])


@pytest.mark.parametrize(
    ("values", "names", "spelt"),
    [
        ((0, 1, 1.0, "1", "1.0", "0.0"), ("0", "1"), [1, 1.0, "1", "1.0"]),
        ((True, "true", "True", False), ("false", "true"), [True, "true", "True", "TRUE"]),
    ],
)
def test_equal_numbers_and_booleans_are_one_class(values, names, spelt):
    """Whether a row has an integer, a float as pandas writes a column with a hole, or the text of either; booleans have
    JSON's spelling, where spreadsheets and pandas have others."""
    labels = find_labels("classification", examples(*values), None)
    assert labels.names == names
    assert labels.targets(examples(*spelt)).tolist() == [1] * len(spelt)
    assert {labels.read(one).label for one in examples(*spelt)} == {names[1]}


@pytest.mark.parametrize("label", [1, 1.0, "1", "1.0"])
def test_a_number_stands_for_the_name_at_its_place(label: Any):
    """However it is written, also as pandas writes a column with a hole."""
    assert Labels("classification", ("no", "yes")).read(examples(label)[0], positions=True).label == "yes"
    several = Labels("multilabel", ("no", "yes")).read(examples([label])[0], positions=True)
    assert several.label == ("yes",)


def test_names_of_an_older_adapter_are_found():
    """`True` and `1.0` were names before numbers and booleans had one."""
    labels = Labels("classification", ("1.0", "True"))
    assert [labels.read(one).label for one in examples(1, 1.0, True, "true")] == ["1.0", "1.0", "True", "True"]


@pytest.mark.parametrize("cell", [["a", "a"], '["a", "a", "b"]', ["1", 1, 1.0, "1.0"]])
def test_a_label_counts_once_in_a_row(cell: Any):
    """A multilabel row has a label or not."""
    labels = find_labels("multilabel", examples(cell), None)
    found = labels.read(examples(cell)[0]).label
    assert len(set(found)) == len(found) == len(labels.names)


def test_given_names_are_distinct_as_json_values():
    """No row could say which of `1` and `1.0` it has."""
    with pytest.raises(TrainingError, match=r"the label names 1, 1\.0 must be distinct"):
        find_labels("classification", (), ("1", "1.0"))
