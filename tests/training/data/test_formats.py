"""Files of CoNLL and of SQuAD are read."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.spec.tasks import TaskType
from peltier_client.bulk.data_file import DataRow
from peltier_training.data.data import Data, read_labelled
from peltier_training.data.formats import read_squad_json
from peltier_training.data.gold import GoldEntity
from peltier_training.errors import TrainingError

CONLL = """-DOCSTART- -X- -X- O

# text = a comment of several words
Ada NNP B-NP B-person
Lovelace NNP I-NP I-person
met VBD B-VP O

\tO
Babbage\tB-person
# O
"""


def _data(path: Path) -> Data:
    return Data(path, path, ("tokens",), "tags")


@pytest.mark.parametrize("name", ["a.conll", "a.bio.gz", "a.iob2"])
def test_texts_end_at_empty_lines(name: str, tmp_path: Path):
    """The first column is the word and the last its tag; a row's line is that of its first word."""
    data = CONLL.replace("\tO\n", "").encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    first, second = read_labelled(_data(tmp_path / name), "token-classification").train.examples
    assert (first.input, first.label.entities) == ("Ada Lovelace met", (GoldEntity(0, 12, "person"),))
    assert (second.input, second.label.entities) == ("Babbage #", (GoldEntity(0, 7, "person"),))
    assert [one.where.rpartition(":")[2] for one in (first, second)] == ["4", "8"]


@pytest.mark.parametrize("comment", ["# text", "# sent_id = O", "# newdoc id", "-DOCSTART- X", "-DOCSTART-\tO"])
def test_a_comment_is_no_word(comment: str, tmp_path: Path):
    """Whatever number of words it has, and wherever it stands."""
    path = tmp_path / "a.conll"
    path.write_text(f"{comment}\nAda B-person\n{comment}\nmet O\n")
    (found,) = read_labelled(_data(path), "token-classification").train.examples
    assert (found.input, found.label.entities) == ("Ada met", (GoldEntity(0, 3, "person"),))


def test_a_hash_may_be_a_word(tmp_path: Path):
    """In a line of as many columns as the others, whose last one is a tag."""
    path = tmp_path / "a.conll"
    path.write_text("# SYM O\nAda NNP B-person\n# SYM I-person\n# a SYM I-person\n")
    (found,) = read_labelled(_data(path), "token-classification").train.examples
    assert (found.input, found.label.entities) == ("# Ada #", (GoldEntity(2, 7, "person"),))


@pytest.mark.parametrize(
    ("content", "kind", "reason"),
    [
        (
            "Ada B-person\n\nmet O\nBabbage\n", "token-classification",
            r"a\.conll:3 has no tag for 'Babbage' in line 4; a line has a word and its",
        ),
        ("Ada\tB-person\n\tO\n", "token-classification", r"a\.conll:1: word 1 of column 'tokens' is ''"),
        (CONLL, "classification", r"a\.conll is not a data file; its name must end in \.jsonl"),
    ],
    ids=["no tag", "no word", "another task"],
)  # fmt: skip
def test_a_conll_file_that_cannot_be_read_is_refused(content: str, kind: TaskType, reason: str, tmp_path: Path):
    """The sentence names the text's first line and its own."""
    path = tmp_path / "a.conll"
    path.write_text(content)
    with pytest.raises(TrainingError, match=reason):
        read_labelled(_data(path), kind)


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
    with pytest.raises(TrainingError, match=r"^dev\.json is not JSON: "):
        read_squad_json(Path("dev.json"), text, COLUMNS)


@pytest.mark.parametrize(
    "text", ["[]", "3", '[{"question": "?"}]', '{"data": [{"paragraphs": [{"qas": [{}]}]}]}', squad("What?")]
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
