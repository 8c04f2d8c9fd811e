"""CoNLL files."""

import gzip
from pathlib import Path

import pytest
from peltier_training.data.data import Data
from peltier_training.data.labelled_data import read_labelled
from peltier_training.data.tags import GoldEntity
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


def test_a_line_without_a_tag_is_refused(tmp_path: Path):
    """The sentence names the text's first line and its own."""
    path = tmp_path / "a.conll"
    path.write_text("Ada B-person\n\nmet O\nBabbage\n")
    with pytest.raises(
        TrainingError, match=r"a\.conll:3 has no tag for 'Babbage' in line 4; a line has a word and its"
    ):
        read_labelled(_data(path), "token-classification")


def test_an_empty_word_is_refused(tmp_path: Path):
    """A tab without a word before it."""
    path = tmp_path / "a.conll"
    path.write_text("Ada\tB-person\n\tO\n")
    with pytest.raises(TrainingError, match=r"a\.conll:1: word 1 of column 'tokens' is ''"):
        read_labelled(_data(path), "token-classification")


def test_conll_is_for_token_classification(tmp_path: Path):
    """Other tasks have one label a row."""
    path = tmp_path / "a.conll"
    path.write_text(CONLL)
    with pytest.raises(TrainingError, match=r"a\.conll is not a data file; its name must end in \.jsonl"):
        read_labelled(_data(path), "classification")
