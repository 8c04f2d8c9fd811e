"""Cells of several labels, and those that can be read in two ways."""

from typing import Any

import pytest
from peltier_training.data.label_cells import check_separator, read_label_cell
from peltier_training.errors import TrainingError

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
    """The sentence names both."""
    with pytest.raises(TrainingError, match=reason):
        read_label_cell(cell, separator)


def test_a_known_label_is_one_label():
    """Whatever characters it is made of."""
    assert read_label_cell("food, drink", None, ("food, drink", "price")) == ("food, drink",)


def test_a_long_cell_is_cut_in_the_sentence():
    """A text column in the place of the label column leaves a sentence that can be read."""
    with pytest.raises(TrainingError) as refused:
        read_label_cell("word, " * 1000)
    assert "…" in str(refused.value)


@pytest.mark.parametrize("separator", ["", "a", "1", "[", '"', "x|"])
def test_a_separator_is_no_letter(separator: str):
    """Nor a character of JSON lists."""
    with pytest.raises(TrainingError, match=r"label separator .* is invalid"):
        check_separator(separator)
    check_separator("|")
    check_separator(None)
