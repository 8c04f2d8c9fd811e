"""Which rows are for validation."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_training.data.data import Data, read_labelled
from peltier_training.data.examples import Example
from peltier_training.errors import TrainingError
from peltier_training.service.split import split, split_file

from tests.training.service.conftest import jsonl


def example(text: str, label: object) -> Example:
    return Example(text, label, "")


@given(
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abc")), min_size=2),
    st.floats(0.01, 0.99),
    st.integers(0, 9),
)
def test_every_row_is_in_one_part(rows: list[tuple[int, str]], share: float, seed: int):
    """Each part has a row if there are two inputs, no input is in both, and the seed decides."""
    examples = [example(f"text {number}", label) for number, label in rows]
    train, validation = split(examples, "classification", share, seed)
    assert Counter(map(id, examples)) == Counter(map(id, [*train, *validation]))
    assert not {one.input for one in train} & {one.input for one in validation}
    assert bool(train) == (len({one.input for one in examples}) > 1)
    assert validation
    assert (train, validation) == split(examples, "classification", share, seed)


def test_each_label_has_its_share():
    """A rare label too, and one with a single row is trained on."""
    examples = [example(f"{number}", "ab"[number % 10 == 0]) for number in range(100)] + [example("x", "c")]
    train, validation = split(examples, "classification", 0.2, seed=3)
    counts = Counter(one.label for one in validation)
    assert counts["a"] == pytest.approx(18, abs=1)
    assert counts["b"] == pytest.approx(2, abs=1)
    assert "c" in {one.label for one in train}


def test_documents_of_a_query_stay_together():
    """A ranking is measured on whole queries."""
    examples = [Example((f"query {number // 4}", f"{number}"), 0, "") for number in range(40)]
    _, validation = split(examples, "ranking", 0.2, seed=0)
    assert Counter(one.input[0] for one in validation) == dict.fromkeys({one.input[0] for one in validation}, 4)
    assert len(validation) == 8


def test_a_label_of_validation_only_is_one_of_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Labels are those of all rows, and what is written is read again."""
    monkeypatch.chdir(tmp_path)
    Path("train.jsonl").write_bytes(jsonl([{"text": f"{n}", "label": f"label {n}"} for n in range(10)]))
    divided = split_file(Data(Path("train.jsonl"), Path("train.jsonl")), "classification", 0.2, 0)
    found = read_labelled(divided, "classification")
    assert (len(found.train.examples), len(found.validation.examples), len(found.labels.names)) == (8, 2, 10)


def test_one_row_is_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nor is one input in many rows."""
    monkeypatch.chdir(tmp_path)
    Path("train.csv").write_text("text,label\nsame,a\nsame,b\n")
    with pytest.raises(TrainingError, match=r"^train.csv has one distinct input; a training needs at least two"):
        split_file(Data(Path("train.csv"), Path("train.csv")), "classification", 0.2, 0)
