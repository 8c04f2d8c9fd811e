"""The answers column of questions about a context."""

import json
from typing import Any

import pytest
from peltier_training.data.gold_spans import GoldSpan, read_gold_spans
from peltier_training.errors import TrainingError

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


@pytest.mark.parametrize("cell", [{"text": [], "answer_start": []}, [], "[]"])
def test_a_question_may_have_no_answer(cell: Any):
    """As in SQuAD 2."""
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
            "answer 'Alps.' from character 58 to 63 is outside the context, which has 62 characters",
        ),
        (
            [{"text": "The", "answer_start": -1}],
            "answer 'The' from character -1 to 2 is outside the context, which has 62 characters",
        ),
        (
            {"text": ["The"], "answer_start": []},
            "answers {'text': ['The'], 'answer_start': []} have 1 texts and 0 starts",
        ),
    ],
)
def test_an_answer_stands_where_it_says(cell: Any, rule: str):
    """The sentence says where it stands instead."""
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
    """One sentence shows the form that is read."""
    with pytest.raises(TrainingError, match=r"^answers .* cannot be read; they must be an object such as \{\"text\""):
        read_gold_spans(cell, CONTEXT)
