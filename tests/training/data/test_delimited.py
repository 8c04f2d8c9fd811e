"""CSV and TSV: what separates the columns, and rows that cannot be read."""

from pathlib import Path

import pytest
from peltier_training.data.bad_rows import BadRow
from peltier_training.data.examples import Example, read_examples, read_rows
from peltier_training.errors import TrainingError


def write(tmp_path: Path, name: str, content: str) -> Path:
    path = tmp_path / name
    path.write_text(content, newline="")
    return path


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_first_line_says_what_separates(tmp_path: Path, delimiter: str):
    """The delimiter is the one that makes the wanted columns; the others may stand in cells, quoted columns may too."""
    rows = [["id", '"text, or; so|on\there"', "label"], ["1", '"a, b; c|d\te"', "yes"]]
    path = write(tmp_path, "d.csv", "\n".join(delimiter.join(row) for row in rows))
    found = read_examples(path, ["text, or; so|on\there"], "label")
    assert found == [Example("a, b; c|d\te", "yes", f"{path}:2")]


def test_tabs_separate_a_tsv(tmp_path: Path):
    """And commas stand in its cells, unquoted."""
    path = write(tmp_path, "d.tsv", 'text\tlabel\na, b\t1\n"c\td"\t2\n')
    assert [example.input for example in read_examples(path, ["text"], "label")] == ["a, b", "c\td"]


def test_a_tsv_without_tabs_is_refused_by_name(tmp_path: Path):
    """It is not read as one odd column."""
    path = write(tmp_path, "d.tsv", "text;label\na;1\n")
    with pytest.raises(TrainingError, match=r"d\.tsv is named \.tsv but its first line is separated by ';'; name it"):
        read_examples(path, ["text"], "label")


def test_a_missing_column_is_told_with_the_real_ones(tmp_path: Path):
    """As the delimiter that is there makes them, with the nearest."""
    path = write(tmp_path, "d.csv", "sentence;label\na;1\n")
    with pytest.raises(
        TrainingError, match="has no column 'sentense', the nearest is 'sentence'; it has 'sentence', 'lab"
    ):
        read_examples(path, ["sentense"], "label")


def test_blank_lines_are_no_rows(tmp_path: Path):
    """Before the first line, between and behind."""
    path = write(tmp_path, "d.csv", "\n\ntext,label\n\na,1\n\n")
    assert [example.where for example in read_examples(path, ["text"], "label")] == [f"{path}:5"]


def test_an_open_quote_spoils_one_row(tmp_path: Path):
    """The rows behind it are read, and each bad row is named by the line that it begins in."""
    path = write(tmp_path, "d.csv", 'text,label\n"a,1\nb,2\n"c" d,3\n"e\nf",4\ng,5,6\nh,7\n"i,8\n')
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
    path = write(tmp_path, "d.tsv", "text\tlabel\n" + '"a\t1\n' * 3000)
    rows = read_rows(path, ["text"], "label")
    assert (len(rows.examples), len(rows.bad)) == (0, 3000)
