"""SQuAD's own nested files."""

import json
from pathlib import Path
from typing import Any

import pytest
from peltier_client.bulk.data_file import DataRow
from peltier_training.data.squad_json import read_squad_json
from peltier_training.errors import TrainingError

COLUMNS = ["question", "context", "answers"]
ALPS = {"text": "Alps", "answer_start": 4}


def squad(*questions: Any) -> str:
    return json.dumps(
        {"version": "v2.0", "data": [{"title": "x", "paragraphs": [{"context": "The Alps.", "qas": questions}]}]}
    )


def test_every_question_is_a_row():
    """With its paragraph as the context; an impossible question has no answers, whatever is plausible."""
    text = squad(
        {"id": "1", "question": "What?", "answers": [ALPS]},
        {"id": "2", "question": "Who?", "answers": [], "plausible_answers": [ALPS], "is_impossible": True},
    )
    assert read_squad_json(Path("dev.json"), text, COLUMNS) == [
        DataRow(1, {"question": "What?", "context": "The Alps.", "answers": [ALPS]}),
        DataRow(2, {"question": "Who?", "context": "The Alps.", "answers": []}),
    ]


@pytest.mark.parametrize("text", ['{"data": [{"paragraphs": [{"qas": []}]}]}x', "{"])
def test_a_broken_file_is_refused(text: str):
    """With the parser's reason."""
    with pytest.raises(TrainingError, match=r"^dev\.json is not JSON: "):
        read_squad_json(Path("dev.json"), text, COLUMNS)


@pytest.mark.parametrize(
    "text",
    ["[]", "3", '[{"question": "?"}]', '{"data": [{"paragraphs": [{"qas": [{}]}]}]}', squad("What?")],
)
def test_a_file_of_another_form_is_refused(text: str):
    """The sentence names the form that is read."""
    with pytest.raises(TrainingError, match=r'^dev\.json is not in SQuAD\'s form, \{"data": \[\{"paragraphs":'):
        read_squad_json(Path("dev.json"), text, COLUMNS)


def test_other_columns_are_refused():
    """They are not in such files, so the user has a file of another form."""
    rule = r"^dev\.json is not a data file; .* whose columns are question, context, answers, not question, label$"
    with pytest.raises(TrainingError, match=rule):
        read_squad_json(Path("dev.json"), squad(), ["question", "label"])
