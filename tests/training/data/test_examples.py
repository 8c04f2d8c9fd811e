"""Data files: what is read, and how each kind of bad file is refused."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from peltier_training.data.examples import Example, LabelledRows, read_examples, read_rows, subsample
from peltier_training.errors import BadRow, TrainingError

GOOD = b'{"text": "a", "label": 1}\n'


def write(tmp_path: Path, name: str, content: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


def write_text(tmp_path: Path, name: str, content: str) -> Path:
    return write(tmp_path, name, content.encode())


def test_json_lines_keep_the_label_as_it_is(tmp_path: Path):
    """Each object is an example with its line; blank lines and other columns are skipped."""
    path = write(tmp_path, "d.jsonl", GOOD + b'\n{"text": "b", "label": ["x"], "other": 2}\n')
    assert read_examples(path, ["text"], "label") == [Example("a", 1, f"{path}:1"), Example("b", ["x"], f"{path}:3")]


def test_csv_quotes_span_lines(tmp_path: Path):
    """CSV follows its first line's names; a quoted cell may hold commas and line ends. A row is where it begins."""
    path = write(tmp_path, "d.csv", b'id,text,label\r\n1,"a, b\nc",yes\r\n')
    assert read_examples(path, ["text"], "label") == [Example("a, b\nc", "yes", f"{path}:2")]


READ: dict[str, tuple[str, bytes, list[str], list[object]]] = {
    "gzip": ("d.jsonl.gz", gzip.compress(GOOD), ["text"], ["a"]),
    "gzip of a table": ("d.csv.gz", gzip.compress(b"text,label\na,1\n"), ["text"], ["a"]),
    "a pair, in the order of the names": ("d.csv", b"one,two,label\na,b,1\n", ["two", "one"], [("b", "a")]),
    "the byte order mark of a spreadsheet": ("d.csv", "\ufefftext,label\na,1\n".encode(), ["text"], ["a"]),
    # Only a line feed ends a line.
    "a separator of lines": ("d.jsonl", '{"text": "a\u2028b", "label": 1}\n'.encode(), ["text"], ["a\u2028b"]),
    "tabs, with commas in cells": ("d.tsv", b'text\tlabel\na, b\t1\n"c\td"\t2\n', ["text"], ["a, b", "c\td"]),
}


@pytest.mark.parametrize("case", READ)
def test_a_file_is_read_as_it_was_meant(tmp_path: Path, case: str):
    name, content, columns, inputs = READ[case]
    assert [one.input for one in read_examples(write(tmp_path, name, content), columns, "label")] == inputs


BAD = {
    "missing column": (
        "d.jsonl",
        GOOD + b'{"body": "a", "label": 1}',
        ":2 has no column 'text'; it has 'body', 'label'",
    ),
    "missing label": ("d.csv", b"text\na\n", " has no column 'label'; it has 'text'"),
    "missing everywhere": (
        "d.jsonl",
        b'{"txt": "a", "label": 1}\n' * 2,
        " has no column 'text', the nearest is 'txt'; it",
    ),
    "twice": ("d.csv", b"text,text,label\na,b,1\n", " has column 'text' twice"),
    "surrogate": ("d.jsonl", b'{"text": "a\\ud800", "label": 1}', ":1: an input text has a lone surrogate '\\ud800'"),
    "empty text": ("d.jsonl", b'{"text": " ", "label": 1}', ":1: column 'text' is ' '; it must be a non-empty text"),
    "invisible text": (
        "d.jsonl",
        b'{"text": "\\u200b\\ufeff", "label": 1}',
        r":1: column 'text' is '\u200b\ufeff'; it must be a non-empty text",
    ),
    "text is a number": ("d.jsonl", b'{"text": 5, "label": 1}', ":1: column 'text' is 5; it must be a non-empty text"),
    "not json": ("d.jsonl", GOOD + b"{text: a}", ":2 is not JSON: "),
    "deep json": ("d.jsonl", b"[" * 100_000, ":1 is not JSON: "),
    "not an object": ("d.jsonl", GOOD + b"[1, 2]", ":2 is list; each line must be a JSON object"),
    "not gzip": ("d.jsonl.gz", GOOD, " cannot be read: Not a gzipped file"),
    "cut gzip": ("d.jsonl.gz", gzip.compress(GOOD * 99)[:-12], " cannot be read: "),
    "flipped gzip": ("d.jsonl.gz", gzip.compress(GOOD)[:12] + b"\xff" * 30, " cannot be read: "),
    "latin-1": ("d.jsonl", GOOD + b'{"text": "caf\xe9", "label": 1}', ":2 is not UTF-8 text: "),
    "suffix": ("d.json", GOOD, " is not a data file; its name must end in .jsonl, .csv or .tsv"),
    "empty": ("d.jsonl", b"\n\n", " has no examples"),
    "empty csv": ("d.csv", b"", " has no examples"),
    "short row": ("d.csv", b"text,label\na,1\nb\n", ":3 has 1 cells; the first line names 2 columns"),
    "long row": ("d.csv", b"text,label\na,1,2\n", ":2 has 3 cells; the first line names 2 columns"),
    "open quote": ("d.csv", b'text,label\n"a,1\n', ":2 is not CSV: "),
    "no tabs": ("d.tsv", b"text;label\na;1\n", " is named .tsv but its first line is separated by ';'; name it"),
    "missing behind another delimiter": (
        "d.csv",
        b"txt;label\na;1\n",
        " has no column 'text', the nearest is 'txt'; it has 'txt', 'lab",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, case: str):
    """The sentence begins with the file, the line where there is one, and names the rule."""
    name, content, reason = BAD[case]
    path = write(tmp_path, name, content)
    with pytest.raises(TrainingError) as refused:
        read_examples(path, ["text"], "label")
    assert str(refused.value).startswith(f"{path}{reason}")
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path):
    """So is a folder in the place of a file."""
    with pytest.raises(TrainingError, match=r"nowhere\.csv does not exist$"):
        read_examples(tmp_path / "nowhere.csv", ["text"], "label")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TrainingError, match=r"folder\.csv cannot be read"):
        read_examples(tmp_path / "folder.csv", ["text"], "label")


def test_a_task_has_one_to_three_texts(tmp_path: Path):
    """Four text columns are refused before the file is opened."""
    with pytest.raises(TrainingError, match="4 text columns were given; a task has one, two or three"):
        read_examples(tmp_path / "d.csv", ["a", "b", "c", "d"], "label")


def test_thinning_keeps_whole_inputs_evenly():
    """Ten inputs of two examples each; three of them, from the first on, with both of their examples."""
    examples = [Example(f"text {number // 2}", number, f"d:{number}") for number in range(20)]
    assert [example.label for example in subsample(examples, 3)] == [0, 1, 6, 7, 12, 13]
    assert subsample(examples, None) == subsample(examples, 10) == subsample(examples, 99) == examples


def test_every_bad_row_is_in_one_sentence(tmp_path: Path):
    """Of every kind, in the order of the file; the first twenty, and how many more."""
    lines = ["{", '{"label": 1}', '{"text": null, "label": 1}', "[]", *['{"text": "a", "label": 1}'] * 3, *["}"] * 20]
    path = write(tmp_path, "d.jsonl", "\n".join(lines).encode())
    with pytest.raises(TrainingError) as refused:
        read_examples(path, ["text"], "label")
    sentence = str(refused.value)
    same = ", ".join(map(str, range(8, 24)))
    assert sentence.startswith(f"24 rows cannot be used: {path}:1 is not JSON: ")
    assert f"; {path}:2 has no column 'text'; it has 'label'; {path}:3: column 'text' is None; it must" in sentence
    assert f"; {path}:{same} is not JSON: Expecting value at column 1; and" in sentence
    assert sentence.endswith("; and 4 more")


def test_a_check_may_change_and_refuse(tmp_path: Path):
    """What it refuses is a bad row; a file of nothing but bad rows is read all the same."""
    path = write(tmp_path, "d.csv", b"text,label\na,1\nb,2\n")

    def check(example: Example) -> Example:
        if example.label == "2":
            raise TrainingError(f"{example.where}: no")
        return replace(example, label="one")

    assert read_rows(path, ["text"], "label", check) == LabelledRows(
        (Example("a", "one", f"{path}:2"),), (BadRow(path, 3, ": no"),)
    )
    assert read_rows(write(tmp_path, "e.jsonl", b"{"), ["text"], "label").examples == ()


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_first_line_says_what_separates(tmp_path: Path, delimiter: str):
    """The delimiter is the one that makes the wanted columns; the others may stand in cells, quoted columns may too."""
    rows = [["id", '"text, or; so|on\there"', "label"], ["1", '"a, b; c|d\te"', "yes"]]
    path = write_text(tmp_path, "d.csv", "\n".join(delimiter.join(row) for row in rows))
    found = read_examples(path, ["text, or; so|on\there"], "label")
    assert found == [Example("a, b; c|d\te", "yes", f"{path}:2")]


def test_blank_lines_are_no_rows(tmp_path: Path):
    path = write_text(tmp_path, "d.csv", "\n\ntext,label\n\na,1\n\n")
    assert [example.where for example in read_examples(path, ["text"], "label")] == [f"{path}:5"]


def test_an_open_quote_spoils_one_row(tmp_path: Path):
    """The rows behind it are read, and each bad row is named by the line that it begins in."""
    path = write_text(tmp_path, "d.csv", 'text,label\n"a,1\nb,2\n"c" d,3\n"e\nf",4\ng,5,6\nh,7\n"i,8\n')
    rows = read_rows(path, ["text"], "label")
    assert [(example.input, example.where) for example in rows.examples] == [
        ("b", f"{path}:3"),
        ("e\nf", f"{path}:5"),
        ("h", f"{path}:8"),
    ]
    assert [row.line for row in rows.bad] == [2, 4, 7, 9]
    assert rows.bad[2] == BadRow(path, 7, " has 3 cells; the first line names 2 columns")


def test_a_file_of_open_quotes_is_read_in_time(tmp_path: Path):
    """Each is a bad row of its own, and the file is not read again from each of them to its end."""
    path = write_text(tmp_path, "d.tsv", "text\tlabel\n" + '"a\t1\n' * 3000)
    rows = read_rows(path, ["text"], "label")
    assert (len(rows.examples), len(rows.bad)) == (0, 3000)
