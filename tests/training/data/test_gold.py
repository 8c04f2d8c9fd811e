"""The right entities and answers of a text are read."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.answers.tags import join_tags
from peltier_training.data.data import Data, read_labelled
from peltier_training.data.examples import Example
from peltier_training.data.gold import (
    GoldEntity,
    GoldSpan,
    Tagged,
    entity_labels,
    read_gold_spans,
    tag_names,
    word_tags,
)
from peltier_training.errors import TrainingError

from tests.training.conftest import write_data

TEXT = "Ada Lovelace met Babbage in London"
WORDS = TEXT.split()
ENTITIES = (GoldEntity(0, 12, "person"), GoldEntity(17, 24, "person"), GoldEntity(28, 34, "place"))
SPANS = [entity._asdict() for entity in ENTITIES]


def read(folder, *rows, labels=None, skip=False) -> list[Example]:
    """The training rows of a file."""
    data = write_data(folder / "a.jsonl", [{"text": text, "label": label} for text, label in rows])
    data = replace(data, labels=labels, skip_bad_rows=skip)
    return list(read_labelled(data, "token-classification").train.examples)


@pytest.mark.parametrize(
    "tags",
    [
        ["B-person", "I-person", "O", "B-person", "O", "B-place"],
        ["I-person", "I-person", "O", "I-person", "O", "I-place"],
        ["person", "person", "O", "person", "O", "place"],
        ["B-person", "L-person", "O", "U-person", "O", "U-place"],
        ["B-person", "E-person", "O", "S-person", "O", "S-place"],
        [1, 2, 0, 1, 0, 3],
    ],
    ids=["BIO", "IO", "bare", "BILOU", "BIOES", "positions"],
)
def test_every_scheme_of_tags_gives_the_entities(tags: list[Any], tmp_path: Path):
    """Words are joined by spaces, and their characters are kept; integers are positions in given tags."""
    labels = ("O", "B-person", "I-person", "B-place", "I-place") if 0 in tags else None
    (example,) = read(tmp_path, (WORDS, tags), labels=labels)
    assert example.input == TEXT
    assert example.label.entities == ENTITIES
    assert [TEXT[start:end] for start, end in example.label.words] == WORDS


def test_neighbours_are_told_apart_where_the_scheme_can():
    """By B, U or S, or after L or E; by another label in any scheme."""
    assert list(join_tags(["B-a", "B-a", "U-a", "L-a", "I-a", "I-b", "O"])) == [
        (0, 1, "a"), (1, 2, "a"), (2, 3, "a"), (3, 4, "a"), (4, 5, "a"), (5, 6, "b"),
    ]  # fmt: skip


def test_spans_of_characters_give_the_entities(tmp_path: Path):
    """In any order, as a list or as its JSON; the words are the tokenizer's."""
    first, second, third = read(tmp_path, (TEXT, SPANS[::-1]), (TEXT, json.dumps(SPANS)), (TEXT, []))
    assert first.label == second.label == Tagged(ENTITIES)
    assert third.label == Tagged(())


def test_words_have_the_tag_of_the_entity_that_they_meet():
    """Also where the entity begins or ends within a word."""
    words = [(0, 3), (4, 12), (12, 13), (17, 24)]
    assert word_tags(words, [GoldEntity(1, 6, "a"), GoldEntity(12, 20, "b")]) == ["B-a", "I-a", "B-b", "I-b"]
    assert word_tags(words, []) == ["O"] * 4


def test_the_tags_of_a_task_are_those_of_bio():
    """In the order of the given labels, else in alphabetical order; given tags keep their order."""
    examples = [Example(TEXT, Tagged(ENTITIES), "a:1")]
    found = ("O", "B-person", "I-person", "B-place", "I-place")
    assert tag_names(examples, None) == found
    assert tag_names((), ("person", "place")) == found
    assert tag_names((), ("B-place", "I-place", "O")) == ("B-place", "I-place", "O")
    assert tag_names((), ("O", "U-x", "B-x", "L-x")) == ("O", "B-x", "I-x")
    assert entity_labels(["O", "B-creative-work", "I-creative-work"]) == ["creative-work"]


@pytest.mark.parametrize(
    ("text", "cell", "reason"),
    [
        (WORDS, ["O"], "there are 1 tags for 6 words"),
        (WORDS, "O", "tags 'O' cannot be read; a list of words has a list of tags"),
        (WORDS, SPANS, "entities need a text; this row has a list of words, so give one tag per word"),
        (TEXT, ["O"] * 6, "tags need a list of words; this row has a text, so give entities such as"),
        (WORDS, [None] * 6, "tag None is not a tag; it must be a text such as 'B-person'"),
        (WORDS, [0] * 6, "tag 0 is not a position in the tags; name them by --labels O,B-person,I-person,…"),
        (WORDS, ["B-person", "person", *"OOOO"], "tag 'person' has no prefix and tag 'B-person' has one"),
        (["Ada", ""], ["O", "O"], "word 1 of column 'text' is ''; words are non-empty texts"),
        (["Ada", 5], ["O", "O"], "word 1 of column 'text' is 5; words are non-empty texts"),
        ([], [], "column 'text' is ''; it must be a non-empty text"),
        (TEXT, {"start": 0}, "entities {'start': 0} cannot be read; they must be a list such as"),
        (TEXT, [{"start": 0, "end": 3}], "entity {'start': 0, 'end': 3} cannot be read; it must be an object as in"),
        (TEXT, [{"start": True, "end": 3, "label": "a"}], "entity {'start': True, 'end': 3, 'label': 'a'} cannot"),
        (TEXT, [SPANS[0], {**SPANS[0], "start": 4}], "entities 'person' from character 0 to 12 and 'person' from 4 to"),
        (
            TEXT,
            [{**SPANS[0], "end": 99}],
            "entity 'person' from character 0 to 99 is not in the text, which has 34 characters",
        ),
        (TEXT, [{**SPANS[0], "end": 0}], "entity 'person' from character 0 to 0 is not in the text"),
        (
            WORDS,
            ["b-person", *"ooooo"],
            "tag 'b-person' would be a label; write 'B-person', or 'I-b-person' if 'b-person'",
        ),
        (WORDS, ["B-person", *"ooooo"], "tag 'o' would be a label; write 'O' for a word that is in no entity"),
        (TEXT, [{"start": 12, "end": 13, "label": "a"}], "entity 'a' from character 12 to 13 has only spaces"),
        (
            TEXT,
            [{**SPANS[0], "text": "Lovelace"}],
            "entity 'person' from character 0 to 12 is 'Ada Lovelace' in the text; its text 'Lovelace' is at "
            "character 4",
        ),
        (
            TEXT,
            [{**SPANS[0], "text": "Curie"}],
            "entity 'person' from character 0 to 12 is 'Ada Lovelace' in the text; its",
        ),
        (
            TEXT,
            [{**SPANS[0], "end": 11, "text": "Ada Lovelace"}],
            "entity 'person' from character 0 to 11 is 'Ada Lovelac' in the text; its text 'Ada Lovelace' is from 0 to "
            "12; the end is that after the last character",
        ),
        (TEXT, [{**SPANS[0], "start": -1}], "entity 'person' from character -1 to 12 is not in the text"),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_refused(text: Any, cell: Any, reason: str, tmp_path: Path):
    """One sentence with the place; the row is skipped where that is asked for."""
    with pytest.raises(TrainingError) as caught:
        read(tmp_path, (TEXT, SPANS), (text, cell))
    assert str(caught.value).startswith(f"{tmp_path}/a.jsonl:2: {reason}")
    assert len(read(tmp_path, (TEXT, SPANS), (text, cell), skip=True)) == 1


@pytest.mark.parametrize(
    ("encoding", "unit"), [("utf-16-le", "UTF-16 code units"), ("utf-8", "bytes of UTF-8")], ids=["utf-16", "utf-8"]
)
def test_offsets_in_other_units_are_refused(encoding: str, unit: str, tmp_path: Path):
    """As JavaScript and Go count them: the sentence names the row and the unit, for entities and for answers."""
    text, width = "🙂 Ada wrote", len("a".encode(encoding))
    start = len("🙂 ".encode(encoding)) // width
    rule = f"; its text 'Ada' is there if offsets are in {unit}; they must be in characters"
    entity = {"start": start, "end": start + 3, "label": "person", "text": "Ada"}
    with pytest.raises(TrainingError, match=re.escape(rule)):
        read(tmp_path, (text, [entity]))
    last = len(text.encode(encoding)) // width
    end = {"start": last - 5, "end": last, "label": "verb"}
    with pytest.raises(
        TrainingError, match=r"a\.jsonl:1: .*; UTF-16 code units may have been counted" if width == 2 else unit
    ):
        read(tmp_path, (text, [end]))
    with pytest.raises(TrainingError, match=f"the answer is there if offsets are in {unit}"):
        read_gold_spans([{"text": "Ada", "answer_start": start}], text)


def test_an_entity_whose_text_is_given_is_where_it_says(tmp_path: Path):
    """Its label may be a number or a boolean, with the name that JSON gives it."""
    given = [{"start": 0, "end": 3, "text": "Ada", "label": 1.0}, {"start": 4, "end": 12, "label": True}]
    (example,) = read(tmp_path, (TEXT, given))
    assert example.label.entities == (GoldEntity(0, 3, "1"), GoldEntity(4, 12, "true"))


@pytest.mark.parametrize(
    ("text", "own"),
    [("Ada\nLovelace", "Ada Lovelace"), ("Ada \r\nLovelace", "Ada Lovelace"), ("Zoe\u0301 ", "Zo\u00e9")],
)
def test_the_text_of_an_entity_may_have_other_spaces_and_another_normal_form(text: str, own: str, tmp_path: Path):
    """Tools such as brat write a line end within an entity as a space."""
    given = {"start": 3, "end": 3 + len(text), "label": "person", "text": own}
    (example,) = read(tmp_path, (f"Dr {text} wrote", [given]))
    assert example.label.entities == (GoldEntity(3, 3 + len(text), "person"),)


def test_tags_may_have_spaces_and_floats_for_positions(tmp_path: Path):
    """As cells of tables have them."""
    (example,) = read(tmp_path, (["Ada", "met"], ["B-x ", " O"]))
    assert example.label.entities == (GoldEntity(0, 3, "x"),)
    (example,) = read(tmp_path, (["Ada", "met"], [1.0, 0.0]), labels=("O", "B-x", "I-x"))
    assert example.label.entities == (GoldEntity(0, 3, "x"),)


@pytest.mark.parametrize("tags", [["1", "2", "0"], [1, 2, 0], [" 1", 2.0, "O"]], ids=str)
def test_digits_are_positions_in_given_tags(tags: list[Any], tmp_path: Path):
    """As cells of a table have them; a tag of that name comes first."""
    words = ["Ada", "Lovelace", "met"]
    (example,) = read(tmp_path, (words, tags), labels=("O", "B-x", "I-x"))
    assert example.label.tags == ("B-x", "I-x", "O")
    (example,) = read(tmp_path, (words, tags), labels=("O", "2", "1"))
    assert example.label.tags == ("1", "2", "O")
    with pytest.raises(TrainingError, match=r"a\.jsonl:1: tag 7 is not a position in the tags; name them by --labels"):
        read(tmp_path, (words, ["7", *tags[1:]]), labels=("O", "B-x", "I-x"))


def test_integers_are_no_positions_in_tags_of_the_training_rows(tmp_path: Path):
    """Their order is not the user's."""
    train, validation = tmp_path / "train.jsonl", tmp_path / "validation.jsonl"
    train.write_text(json.dumps({"text": ["Ada", "met"], "label": ["B-x", "O"]}))
    validation.write_text(json.dumps({"text": ["Ada", "met"], "label": [1, 0]}))
    with pytest.raises(TrainingError, match=r"validation\.jsonl:1: tag 1 is not a position in the tags; name them by"):
        read_labelled(Data(train, validation), "token-classification")


def test_offsets_may_be_whole_floats(tmp_path: Path):
    """As pandas writes a column with a hole."""
    (example,) = read(tmp_path, (TEXT, [{"start": 0.0, "end": 12.0, "label": "person"}]))
    assert example.label.entities == ENTITIES[:1]
    with pytest.raises(TrainingError, match=r"^.*entity \{'start': 0\.5, .* cannot be read"):
        read(tmp_path, (TEXT, [{"start": 0.5, "end": 12.0, "label": "person"}]))


def test_given_labels_are_no_tags_in_lower_case():
    """They would be labels of entities that no row has."""
    with pytest.raises(TrainingError, match=r"^tag 'b-x' would be a label; write 'B-x'"):
        tag_names((), ("b-x", "i-x"))


def test_labels_of_others_are_refused(tmp_path: Path):
    for row in ((WORDS, ["B-animal", *"OOOOO"]), (TEXT, [{**SPANS[0], "label": "animal"}])):
        rule = "a.jsonl:1: label 'animal' is not one of the task's 2 labels of entities: person, place"
        with pytest.raises(TrainingError, match=rule):
            read(tmp_path, row, labels=("person", "place"))
    with pytest.raises(TrainingError, match="needs at least one entity in the training rows"):
        read(tmp_path, (TEXT, []))


def test_lists_of_words_are_for_token_classification(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": WORDS, "label": "a"}))
    with pytest.raises(TrainingError, match=r"column 'text' is .*; it must be a non-empty text"):
        read_labelled(Data(path, path), "classification")


CONTEXT = "The Danube rises in the Black Forest, and the Inn in the Alps."


@pytest.mark.parametrize(
    "cell",
    [
        {"text": ["Black Forest", "the Alps"], "answer_start": [24, 53]},
        [{"text": "Black Forest", "answer_start": 24}, {"answer_start": 53, "text": "the Alps", "more": 1}],
        json.dumps({"text": ["Black Forest", "the Alps"], "answer_start": [24, 53]}),
    ],
    ids=["lists", "objects", "json"],
)
def test_answers_are_read_in_each_form(cell: Any):
    """Lists, SQuAD's own objects, and JSON in a cell of a CSV file."""
    assert read_gold_spans(cell, CONTEXT) == (GoldSpan(24, "Black Forest"), GoldSpan(53, "the Alps"))


@pytest.mark.parametrize(
    ("written", "given"),
    [
        ("Ada\nLovelace", "Ada Lovelace"),
        ("Ada\r\n Lovelace", "Ada\nLovelace"),
        ("Zoe\u0301 Ann", "Zo\u00e9 Ann"),
        ("Ann Zoe\u0301", "Ann  Zo\u00e9"),
        ("Ann Zo\u00e9", "Ann\nZoe\u0301"),
    ],
)
def test_an_answer_may_have_other_spaces_and_another_normal_form(written: str, given: str):
    """It is the characters of the context, which may be more or fewer, from the given one on."""
    answers = {"text": [given], "answer_start": [3]}
    assert read_gold_spans(answers, f"Dr {written}, who wrote") == (GoldSpan(3, written),)
    assert read_gold_spans(answers, f"Dr {written}") == (GoldSpan(3, written),)
    for start in (0, 2, 4):
        with pytest.raises(TrainingError, match=rf"^answer .* is not at character {start} of|character {start} to"):
            read_gold_spans({"text": [given], "answer_start": [start]}, f"Dr {written}")


@pytest.mark.parametrize("cell", [{"text": [], "answer_start": []}, [], "[]"])
def test_a_question_may_have_no_answer(cell: Any):
    assert read_gold_spans(cell, CONTEXT) == ()


@pytest.mark.parametrize(
    ("cell", "rule"),
    [
        (
            {"text": ["Alps"], "answer_start": [1]},
            "answer 'Alps' is not at character 1 of the context, which has 'he D' there; the answer is at character 57",
        ),
        (
            {"text": ["Rhine"], "answer_start": [0]},
            "answer 'Rhine' is not at character 0 of the context, which has 'The D' there; the answer is nowhere in it",
        ),
        (
            {"text": ["Alps."], "answer_start": [58]},
            "answer 'Alps.' from character 58 to 63 is outside the context, which has 62 characters; the answer is "
            "at character 57",
        ),
        (
            [{"text": "The", "answer_start": -1}],
            "answer 'The' from character -1 to 2 is outside the context, which has 62 characters; the answer is at "
            "character 0",
        ),
        (
            {"text": ["\ud800"], "answer_start": [0]},
            "answer '\\ud800' is not at character 0 of the context, which has 'T' there; the answer is nowhere in it",
        ),
        (
            {"text": ["The"], "answer_start": []},
            "answers {'text': ['The'], 'answer_start': []} have 1 texts and 0 starts",
        ),
    ],
)
def test_an_answer_stands_where_it_says(cell: Any, rule: str):
    with pytest.raises(TrainingError) as refused:
        read_gold_spans(cell, CONTEXT)
    assert str(refused.value) == rule


@pytest.mark.parametrize(
    "cell",
    [
        None,
        "the Alps",
        7,
        {"text": "the Alps", "answer_start": 53},
        {"text": ["the Alps"]},
        {"text": [" "], "answer_start": [3]},
        {"text": ["T"], "answer_start": [False]},
        {"text": ["T"], "answer_start": ["0"]},
        ["the Alps"],
    ],
)
def test_anything_else_is_refused(cell: Any):
    with pytest.raises(TrainingError, match=r"^answers .* cannot be read; they must be an object such as \{\"text\""):
        read_gold_spans(cell, CONTEXT)
