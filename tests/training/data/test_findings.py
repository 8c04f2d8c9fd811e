"""Examples that may not mean what they say."""

from pathlib import Path
from typing import Any

import pytest
from peltier_training.data.data import read_labelled
from peltier_training.data.findings import find_doubts

from tests.training.conftest import write_data


def doubts(folder: Path, *rows: tuple[Any, Any]) -> list[str]:
    data = write_data(folder / "a.jsonl", [{"text": text, "label": label} for text, label in rows])
    return list(find_doubts(read_labelled(data, "token-classification")))


def test_entities_within_a_word_are_told(tmp_path: Path):
    """As offsets in UTF-16 after an emoji make them; the ends of words, and of texts without spaces, are not."""
    fine = [{"start": 0, "end": 3, "label": "who"}]
    assert doubts(tmp_path, ("Ada wrote", fine), ("東京都に行く", [{"start": 0, "end": 2, "label": "who"}])) == []
    (told,) = doubts(tmp_path, ("🙂 Ada wrote", [{"start": 3, "end": 6, "label": "who"}]), ("Ada wrote", fine))
    assert told == (
        f"Entities that begin or end within a word: 2 of 4, such as 'da ' in {tmp_path}/a.jsonl:1. The whole word gets "
        "the label; are the offsets in characters?"
    )


def test_entities_that_begin_inside_are_told(tmp_path: Path):
    """Where others begin with B-; a scheme in which all begin with I- is a scheme."""
    words = ["Ada", "met", "Eve", "Bob"]
    assert doubts(tmp_path, (words, ["I-x", "O", "I-x", "B-x"])) == []
    assert doubts(tmp_path, (words, ["B-x", "O", "B-x", "I-x"])) == []
    (told,) = doubts(tmp_path, (words, ["B-x", "O", "I-x", "O"]))
    assert told == (
        f"Entities that begin with an I- tag, where others begin with B-: 2, such as 'I-x' in {tmp_path}/a.jsonl:1. "
        "Each counts as an entity."
    )


def test_labels_of_entities_that_people_take_for_one_are_told(tmp_path: Path):
    """By the labels, not by the tags."""
    (told,) = doubts(tmp_path, (["Ada", "Eve"], ["B-who", "B-Who"]))
    assert told.startswith(
        "Labels that differ only in spaces, capitals or the form of characters are classes apart: 'Who'"
    )


@pytest.mark.parametrize("tags", [["B_who", "I_who", "O"], ["who-B", "who-I", "O"], ["b_who", "who_e", "O"]], ids=str)
def test_tags_of_a_scheme_that_is_not_read_are_told(tags: list[str], tmp_path: Path):
    """They are trained as labels."""
    own = ", ".join(map(repr, sorted(tags[:2])))
    (told,) = doubts(tmp_path, (["Ada", "Lovelace", "wrote"], tags))
    assert told == (
        f"Labels that look like tags, but are classes of their own: 2 of 2, such as {own}. Tags of words "
        "are 'B-who' and 'I-who', and the label of a part of a text is 'who'."
    )


def test_tags_as_labels_of_parts_of_a_text_are_told(tmp_path: Path):
    """Labels that only begin or end with such a letter are not."""
    spans = [{"start": 0, "end": 3, "label": "B-who"}, {"start": 4, "end": 12, "label": "I-who"}]
    (told,) = doubts(tmp_path, ("Ada Lovelace wrote", spans))
    assert told.startswith("Labels that look like tags, but are classes of their own: 2 of 2, such as 'B-who'")
    (told,) = doubts(tmp_path, ("Ada Lovelace wrote", [{"start": 0, "end": 12, "label": "B-who"}]))
    assert "of their own: 1 of 1, such as 'B-who'. Tags of words are 'B-who' and 'I-who', and the label" in told
    fine = [{**spans[0], "label": "U-boat"}, {**spans[1], "label": "vitamin-B"}]
    assert doubts(tmp_path, ("Ada Lovelace wrote", fine)) == []
    assert doubts(tmp_path, (["Ada", "Lovelace", "wrote"], ["B-who", "I-who", "S-what"])) == []
