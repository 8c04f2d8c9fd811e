"""Entities of files, and their metrics."""

import json
from typing import Any

import pytest
from peltier_client.bulk.entities import read_entities, score_entities, show_entities
from peltier_client.errors import InvalidInput

TEXT = "Ada in London"
ADA, LONDON = (0, 3, "person"), (7, 13, "place")
CELL = [{"start": 0, "end": 3, "label": "person"}, {"start": 7, "end": 13, "label": "place", "text": "London"}]


def test_entities_are_read_from_a_list_or_its_json():
    """Other keys of an object do not matter."""
    assert read_entities(CELL) == read_entities(json.dumps(CELL)) == {ADA, LONDON}
    assert read_entities([]) == frozenset()
    assert show_entities(TEXT, read_entities(CELL)) == ["person: Ada", "place: London"]


@pytest.mark.parametrize("cell", ["person", ["B-person"], [{"start": 0}], 5, None, [{**CELL[0], "end": "3"}]], ids=str)
def test_what_has_no_entities_is_refused(cell: Any):
    """In one sentence with the form."""
    with pytest.raises(InvalidInput, match=r"has no entities; they must be a list such as \[\{"):
        read_entities(cell)


def test_scores_are_of_whole_entities():
    """One of two is right; a longer one is not."""
    metrics, classes = score_entities(
        [frozenset({ADA, LONDON})], [frozenset({ADA, (4, 13, "place"), (7, 13, "person")})]
    )
    assert metrics == pytest.approx({"f1": 2 / 5, "precision": 1 / 3, "recall": 1 / 2})
    assert classes["person"] == pytest.approx({"f1": 2 / 3, "precision": 1 / 2, "recall": 1.0, "support": 1.0})
    assert classes["place"]["f1"] == 0.0
    assert score_entities([frozenset()], [frozenset()])[0] == {"f1": 0.0, "precision": 0.0, "recall": 0.0}
