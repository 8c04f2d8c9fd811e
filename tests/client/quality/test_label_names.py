"""One name for equal values of JSON."""

import math
from typing import Any

import pytest
from peltier_client.quality.label_names import json_name, json_spelling


@pytest.mark.parametrize(
    ("label", "name"),
    [(1, "1"), (1.0, "1"), (0.5, "0.5"), (True, "true"), ("1.0", "1.0"), (" a", " a"), (1e20, str(10**20))],
)
def test_a_value_has_one_name(label: Any, name: str) -> None:
    """A whole number is an integer however it is written; texts stay."""
    assert json_name(label) == name


@pytest.mark.parametrize("label", [None, math.nan, math.inf, "", " ", [], {}])
def test_other_values_have_none(label: Any) -> None:
    """Not even by their names in Python."""
    assert json_name(label) is None


@pytest.mark.parametrize(
    ("text", "spelling"), [("1.0", "1"), ("-0.0", "0"), ("TRUE", "true"), ("1.10", "1.10"), ("01", "01"), ("a", "a")]
)
def test_a_cell_has_the_spelling_of_json(text: str, spelling: str) -> None:
    """If it stands for a whole number or a boolean."""
    assert json_spelling(text) == spelling
