"""One name for one label."""

import math
from typing import Any

import pytest
from peltier_client.quality.label_names import json_spelling
from peltier_training.data.label_names import describe_alike, distinct_names, label_name
from peltier_training.errors import TrainingError


@pytest.mark.parametrize(
    ("label", "name"),
    [
        (1, "1"),
        (1.0, "1"),
        (-0.0, "0"),
        (1e20, "100000000000000000000"),
        (10**20, "100000000000000000000"),
        (0.5, "0.5"),
        (True, "true"),
        (False, "false"),
        ("1.0", "1.0"),
        ("True", "True"),
        (" good ", " good "),
    ],
)
def test_equal_json_values_have_one_name(label: Any, name: str):
    """A whole number is an integer however it is written, and a boolean is spelled as in JSON; texts stay."""
    assert label_name(label) == name


@pytest.mark.parametrize("label", [None, math.nan, math.inf, "", " \n", {"a": 1}, ["a"], "\ud800"])
def test_other_values_are_no_label(label: Any):
    """Nothing becomes a class by its name in Python."""
    with pytest.raises(TrainingError, match=r"^label "):
        label_name(label)


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("1.0", "1"),
        ("-2.00", "-2"),
        ("-0.0", "0"),
        ("True", "true"),
        ("FALSE", "false"),
        ("1.10", "1.10"),
        ("01", "01"),
        ("1.", "1."),
        ("1e0", "1e0"),
        ("truely", "truely"),
    ],
)
def test_the_cell_of_a_table_has_the_spelling_of_json(text: str, spelling: str):
    """Only whole numbers and booleans; versions, codes and words stay as they are."""
    assert json_spelling(text) == spelling


def test_names_of_equal_numbers_are_one():
    """A spelling that is alone stays that of the file."""
    assert distinct_names(["1", "1.0", "2.0", "True", "no", "false", "False"]) == {"1", "2.0", "True", "no", "false"}


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (["0.0", "1.0"], {"0", "1"}),
        (["True", "False"], {"true", "false"}),
        (["1.0", "1.1", "2.0"], {"1.0", "1.1", "2.0"}),
        (["1.0", "one"], {"1.0", "one"}),
        (["True", "maybe"], {"True", "maybe"}),
    ],
)
def test_a_column_of_numbers_or_booleans_has_the_names_of_json(cells: list[str], names: set[str]):
    """The cells of a table have no types; versions and words keep their texts, and so do all texts of JSON."""
    assert distinct_names(cells, of_table=True) == names
    assert distinct_names(cells) == set(cells)


def test_names_that_people_take_for_one_are_told():
    """Spaces, capitals and two normal forms of one word."""
    assert describe_alike(["good", "bad", "goods"]) is None
    told = describe_alike(["good", "good ", "Good", "caf\u00e9", "cafe\u0301", "New York", "new\u00a0 york"])
    assert told == (
        "labels that differ only in spaces, capitals or the form of characters are classes apart: 'good', 'good ', "
        "'Good', and 3 groups of labels are alike; give them one name if they are one class."
    )
