"""Labels as files have them, and their names."""

import json
import math

import pytest
from peltier_client.errors import InvalidInput
from peltier_client.quality.gold import read_answers, read_entities, read_label, read_labels, read_number, show_entities
from peltier_client.quality.label_names import json_name, json_spelling

NAMES = ["food", "price", "a|b"]


@pytest.mark.parametrize(
    ("cell", "names", "label"),
    [("food", NAMES, "food"), (1, NAMES, "price"), ("1", NAMES, "price"), (7, NAMES, "7"), (1, ["0", "1"], "1")],
)
def test_an_integer_is_a_position_unless_integers_are_names(cell, names: list[str], label: str) -> None:
    assert read_label(cell, names) == label


@pytest.mark.parametrize(
    ("cell", "names", "label"),
    [
        (1.0, NAMES, "price"),
        ("1.0", NAMES, "price"),
        (1.0, ["0", "1"], "1"),
        ("1.0", ["0", "1"], "1"),
        (1, ["0.0", "1.0"], "1.0"),
        (True, ["false", "true"], "true"),
        ("True", ["false", "true"], "true"),
        (True, ["False", "True"], "True"),
        ("1.10", ["1.1", "1.2"], "1.10"),
    ],
)
def test_equal_values_have_the_name_that_the_adapter_has(cell, names: list[str], label: str) -> None:
    """However a file spells a number or a boolean, and whatever an older adapter calls it."""
    assert read_label(cell, names) == label


@pytest.mark.parametrize(
    ("cell", "separator", "labels"),
    [
        (["food", "price"], None, {"food", "price"}),
        ('["food", 1]', None, {"food", "price"}),
        ("food | price", "|", {"food", "price"}),
        ("a|b", None, {"a|b"}),
        ("food", None, {"food"}),
        (0, None, {"food"}),
        ("", None, set()),
        ([], None, set()),
    ],
)
def test_several_labels_of_a_cell(cell, separator: str | None, labels: set[str]) -> None:
    """A list, a JSON list, or texts with a separator; a label that is known as a whole is one."""
    assert read_labels(cell, NAMES, separator) == labels


@pytest.mark.parametrize(
    ("read", "sentence"),
    [
        (lambda: read_label(None, NAMES), "must be a text or a number"),
        (lambda: read_label(float("nan"), NAMES), "must be a text or a number"),
        (lambda: read_labels("food|price", NAMES, None), "write a JSON list, or give --label-separator"),
        (lambda: read_labels("['food']", NAMES, None), "is not JSON"),
        (lambda: read_answers({"text": "the Alps"}), r"answers \{'text': 'the Alps'\} cannot be read"),
        (lambda: read_number("many"), "not a finite number"),
        (lambda: read_number(float("nan")), "not a finite number"),
    ],
)
def test_what_is_no_label_is_refused(read, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        read()


TEXT = "Ada in London"
ADA, LONDON = (0, 3, "person"), (7, 13, "place")
CELL = [{"start": 0, "end": 3, "label": "person"}, {"start": 7, "end": 13, "label": "place", "text": "London"}]


def test_entities_are_read_from_a_list_or_its_json():
    """Other keys of an object do not matter."""
    assert read_entities(CELL) == read_entities(json.dumps(CELL)) == {ADA, LONDON}
    assert read_entities([]) == frozenset()
    assert show_entities(TEXT, read_entities(CELL)) == ["person: Ada", "place: London"]


@pytest.mark.parametrize("cell", ["person", ["B-person"], [{"start": 0}], 5, None, [{**CELL[0], "end": "3"}]], ids=str)
def test_what_has_no_entities_is_refused(cell):
    """In one sentence with the form."""
    with pytest.raises(InvalidInput, match=r"has no entities; they must be a list such as \[\{"):
        read_entities(cell)


@pytest.mark.parametrize(
    ("label", "name"),
    [(1, "1"), (1.0, "1"), (0.5, "0.5"), (True, "true"), ("1.0", "1.0"), (" a", " a"), (1e20, str(10**20))],
)
def test_a_value_has_one_name(label, name: str) -> None:
    """A whole number is an integer however it is written; texts stay."""
    assert json_name(label) == name


@pytest.mark.parametrize("label", [None, math.nan, math.inf, "", " ", [], {}])
def test_other_values_have_none(label) -> None:
    """Not even by their names in Python."""
    assert json_name(label) is None


@pytest.mark.parametrize(
    ("text", "spelling"), [("1.0", "1"), ("-0.0", "0"), ("TRUE", "true"), ("1.10", "1.10"), ("01", "01"), ("a", "a")]
)
def test_a_cell_has_the_spelling_of_json(text: str, spelling: str) -> None:
    """If it stands for a whole number or a boolean."""
    assert json_spelling(text) == spelling
