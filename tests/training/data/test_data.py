"""Both files of a task are read, and every bad row is named."""

import json
from pathlib import Path
from typing import Any

import pytest
from peltier_training.data.data import Data, read_labelled, skipped_lines
from peltier_training.errors import TrainingError


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(dict(zip(("text", "label"), row, strict=True))) + "\n" for row in rows))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Data:
    """Two files with two bad rows each: a text and a label that are not there, a label of no training row."""
    train = write(tmp_path / "train.jsonl", ("a", "no"), (None, "yes"), ("b", "yes"), ("c", None))
    validation = write(tmp_path / "validation.jsonl", ("a", "maybe"), ("b", "no"), ("", "no"))
    return Data(train, validation, ("text",), "label")


def test_bad_rows_of_training_are_told_before_labels(data: Data):
    """With those of the validation file that are bad whatever the labels are, in one sentence."""
    with pytest.raises(TrainingError) as refused:
        read_labelled(data, "classification")
    assert str(refused.value) == (
        f"3 rows cannot be used: {data.train}:2: column 'text' is None; it must be a non-empty text; "
        f"{data.train}:4: label None is not a label; it must be a text or a number; "
        f"{data.validation}:3: column 'text' is ''; it must be a non-empty text"
    )


@pytest.mark.parametrize("kind", ["classification", "multilabel"])
def test_integers_are_positions_in_given_names_alone(tmp_path: Path, kind: Any):
    """A 1 in the validation file is the second of `--labels`; where labels are found in training it is unknown."""
    train = write(tmp_path / "train.jsonl", ("a", "no"), ("b", "yes"))
    validation = write(tmp_path / "validation.jsonl", ("c", 1), ("d", "no"))
    with pytest.raises(
        TrainingError, match=r"validation\.jsonl:1: label '1' is not one of the task's 2 labels: no, yes"
    ):
        read_labelled(Data(train, validation, ("text",), "label"), kind)
    found = read_labelled(Data(train, validation, ("text",), "label", ("no", "yes")), kind)
    assert [example.label for example in found.validation.examples] in (["yes", "no"], [("yes",), ("no",)])


def test_skipped_rows_are_counted_and_told(data: Data):
    """The rest is read, a label of no training row is left out too, and what is recorded says how many."""
    found = read_labelled(Data(data.train, data.validation, ("text",), "label", skip_bad_rows=True), "classification")
    assert [example.input for example in found.train.examples + found.validation.examples] == ["a", "b", "b"]
    assert found.labels.names == ("no", "yes")
    assert found.sizes == {"train_rows": 2, "validation_rows": 1, "skipped_rows": {"train": 2, "validation": 2}}
    lines = skipped_lines({data.train: found.train, data.validation: found.validation})
    assert [line for line in lines if "were skipped" in line] == [
        f"{data.train}: 2 of 4 rows were skipped",
        f"{data.validation}: 2 of 3 rows were skipped",
    ]
    assert f"{data.validation}:1: label 'maybe' is not one of the task's 2 labels: no, yes" in lines


def test_a_file_of_bad_rows_is_refused_all_the_same(tmp_path: Path):
    """There is nothing to go on with."""
    bad, good = write(tmp_path / "bad.jsonl", (None, "a")), write(tmp_path / "good.jsonl", ("x", "a"), ("y", "b"))
    for train, validation in ((bad, good), (good, bad)):
        with pytest.raises(TrainingError, match=r"bad\.jsonl has no valid row: .*bad\.jsonl:1: column"):
            read_labelled(Data(train, validation, ("text",), "label", skip_bad_rows=True), "classification")


def test_a_separator_parts_labels(tmp_path: Path):
    """Examples have tuples then, whose labels the names are; a label with a comma in it is one."""
    train = write(tmp_path / "t.jsonl", ("x", "food, drink|price"), ("y", ""), ("z", ["food, drink"]))
    found = read_labelled(Data(train, train, ("text",), "label", None, "|"), "multilabel")
    assert found.labels.names == ("food, drink", "price")
    assert [example.label for example in found.train.examples] == [("food, drink", "price"), (), ("food, drink",)]


def test_a_separator_is_for_several_labels(tmp_path: Path):
    """Elsewhere it is a mistake; so is one that labels are made of."""
    with pytest.raises(TrainingError, match="label_separator is for multilabel; the task type is classification"):
        Data(tmp_path, tmp_path, ("text",), "label", None, "|").check("classification")
    with pytest.raises(TrainingError, match="label separator 'x' is invalid"):
        Data(tmp_path, tmp_path, ("text",), "label", None, "x").check("multilabel")


@pytest.mark.parametrize("labels", [(None, 1.0, 0.0), (1.0, None, 0.0)])
def test_a_pair_without_a_score_beside_others_is_refused(tmp_path: Path, labels: tuple[float | None, ...]):
    """Wherever it is; else pairs that do not belong together would be trained as if they did."""
    file = write(tmp_path / "pairs.jsonl", *zip("abc", labels, strict=True))
    with pytest.raises(
        TrainingError, match=rf"jsonl:{labels.index(None) + 1}: label None is not a finite number, which"
    ):
        read_labelled(Data(file, file, ("text", "text"), "label"), "embedding")


def test_pairs_without_any_score_belong_together(tmp_path: Path):
    """Whether the rows have an empty column of labels or none."""
    file = write(tmp_path / "pairs.jsonl", ("a", None), ("b", None))
    found = read_labelled(Data(file, file, ("text", "text"), "label"), "embedding")
    assert [example.label for example in found.train.examples] == [None, None]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"text": "a", "label": 0}\n{"text": "b", "label": 1.0}\n{"text": "c", "label": "1"}\n'),
        ("a.csv", "text,label\na,0.0\nb,1.0\nc,1.0\n"),
        ("a.tsv", "text\tlabel\na\t0\nb\t1.0\nc\t1\n"),
    ],
)
def test_a_column_of_numbers_has_the_same_labels_in_every_format(name: str, content: str, tmp_path: Path):
    """Also where pandas wrote integers as floats, because one was missing; and positions in given names."""
    path = tmp_path / name
    path.write_text(content)
    found = read_labelled(Data(path, path), "classification")
    assert found.labels.names == ("0", "1")
    assert [one.label for one in (*found.train.examples, *found.validation.examples)] == ["0", "1", "1"] * 2
    named = read_labelled(Data(path, path, labels=("no", "yes")), "classification")
    assert [one.label for one in named.train.examples] == ["no", "yes", "yes"]


def test_validation_may_spell_numbers_and_booleans_otherwise(tmp_path: Path):
    """A table beside JSON: the names are those of the training rows."""
    train, validation = tmp_path / "a.jsonl", tmp_path / "b.csv"
    train.write_text('{"text": "a", "label": true}\n{"text": "b", "label": false}\n')
    validation.write_text("text,label\na,True\nb,FALSE\n")
    found = read_labelled(Data(train, validation), "classification")
    assert [one.label for one in found.validation.examples] == ["true", "false"]
