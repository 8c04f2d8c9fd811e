"""Examples from Python."""

import json
import os
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peltier_training.data.examples import read_examples
from peltier_training.errors import TrainingError
from peltier_training.notebook.examples import write_rows

from benchmarks.common.libraries import installed

COLUMNS = ("text", "label")
ROWS = [{"text": "é", "label": "a"}, {"text": "b", "label": None}]
# Rows of real frames, in a process that can import the libraries.
FRAMES = """
import json, sys
from pathlib import Path
import pandas, polars
from datasets import Dataset
from peltier_training.notebook.examples import write_rows
rows = {"text": ["é", "b"], "label": [1, 2], "score": [0.5, None]}
frames = [pandas.DataFrame(rows), polars.DataFrame(rows), Dataset.from_dict(rows)]
print(json.dumps([write_rows(one, Path(sys.argv[1]), ("text", "label")).read_text() for one in frames]))
"""


def written(examples: Any, path: Path) -> list[Any]:
    return [json.loads(line) for line in write_rows(examples, path, COLUMNS).read_text().splitlines()]


def test_rows_are_mappings_or_tuples(tmp_path: Path) -> None:
    """In any iterable, with numpy's values as Python's and a missing number as null."""
    path = tmp_path / "rows.jsonl"
    assert written(ROWS, path) == ROWS
    assert written(iter([("é", "a"), ("b", None)]), path) == ROWS
    values = {"text": np.str_("é"), "label": np.int64(3), "tags": np.array([1.5]), "score": np.float32("nan")}
    assert written([values], path) == [{"text": "é", "label": 3, "tags": [1.5], "score": None}]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.bool_(True), True),
        (np.float64(1.0), 1.0),
        (Decimal("1.50"), 1.5),
        (Decimal("NaN"), None),
        ({"text": np.array(["a"]), "answer_start": np.array([3])}, {"text": ["a"], "answer_start": [3]}),
        ([{"start": np.int64(0), "end": np.int32(1), "label": np.str_("x")}], [{"start": 0, "end": 1, "label": "x"}]),
        (np.array([{"start": np.int64(0)}, None], dtype=object), [{"start": 0}, None]),
        (("a", np.int64(1)), ["a", 1]),
    ],
)
def test_values_within_values_are_those_of_python(value: Any, expected: Any, tmp_path: Path) -> None:
    """As a DataFrame has them after it read a Parquet file, and decimal numbers."""
    assert written([("a", value)], tmp_path / "rows.jsonl") == [{"text": "a", "label": expected}]


def test_half_a_character_is_refused_by_the_reader(tmp_path: Path) -> None:
    """With its row, and not when the rows are written."""
    path = write_rows([("a", "b"), ("\ud800", "c")], tmp_path / "rows.jsonl", COLUMNS)
    with pytest.raises(TrainingError, match=r"rows\.jsonl:2 is not UTF-8 text"):
        read_examples(path, ("text",), "label")


def test_a_file_is_used_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name may be relative to the current directory."""
    monkeypatch.chdir(tmp_path)
    assert write_rows("rows.csv", tmp_path / "unused", COLUMNS) == tmp_path / "rows.csv"
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(
    ("examples", "sentence"),
    [
        (3, "the examples are a int; give a DataFrame, a Dataset, a list of rows or the name of a file"),
        ({"text": ["a"]}, "the examples are a dict; give a DataFrame"),
        ([("a", "b", "c")], "example 1 is ('a', 'b', 'c'); it must be a mapping, or a tuple of text, label"),
        ([ROWS[0], "a"], "example 2 is 'a'; it must be a mapping"),
        ([{"text": date(2026, 1, 2), "label": 1}], "example 1 has datetime.date(2026, 1, 2) as 'text'; a value must"),
    ],
)
def test_other_examples_are_refused(examples: Any, sentence: str, tmp_path: Path) -> None:
    """In one sentence."""
    with pytest.raises(TrainingError) as raised:
        write_rows(examples, tmp_path / "rows.jsonl", COLUMNS)
    assert str(raised.value).startswith(sentence)


# The kinds of rows are tested quickly above; this needs pandas, polars and datasets.
@pytest.mark.slow
def test_frames_of_other_libraries_are_read(tmp_path: Path) -> None:
    """A DataFrame of pandas and of polars and a Dataset have the same rows."""
    path = os.pathsep.join([str(installed("frames")), *sys.path])
    command = [sys.executable, "-W", "ignore", "-c", FRAMES, str(tmp_path / "rows.jsonl")]
    environment = os.environ | {"PYTHONPATH": path, "HF_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    expected = [{"text": "é", "label": 1, "score": 0.5}, {"text": "b", "label": 2, "score": None}]
    for text in json.loads(done.stdout):
        assert [json.loads(line) for line in text.splitlines()] == expected
