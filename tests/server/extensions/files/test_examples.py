"""Checks of files of examples."""

import json
from contextlib import suppress

import pytest
from peltier_client.errors import InvalidInput
from peltier_server.extensions.files import examples
from peltier_server.extensions.files.examples import ExampleCheck, to_jsonl


def count(name: str, data: bytes, max_rows: int = 1000) -> int:
    """The rows of a file that is accepted."""
    check = ExampleCheck(name, data, max_rows)
    while check.advance():
        pass
    return check.num_rows


def refusal(name: str, data: bytes) -> str:
    """Why a file is refused."""
    with pytest.raises(InvalidInput) as caught:
        count(name, data)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "rows"),
    [
        ("a.jsonl", b'{"a": 1}', 1),
        ("a.JSONL", b'\xef\xbb\xbf{"a": 1}\r\n\n  \n{"a": [1, {"b": "\xc3\xa9"}]}\n', 2),
        ("a.csv", b"text,label\na,1\n\nb,2", 2),
        ("a.csv", b'text;label\r\n"a;\r\nb";1\r\n', 1),
        ("a.tsv", b"text\tlabel\na, b\t1\n", 1),
    ],
)
def test_rows_are_counted(name: str, data: bytes, rows: int) -> None:
    """Without blank lines; a cell may have line breaks and delimiters in quotes."""
    assert count(name, data) == rows


def test_a_file_is_checked_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a large one does not occupy a thread; the rows are those of the whole."""
    monkeypatch.setattr(examples, "PIECE_BYTES", 20)
    monkeypatch.setattr(examples, "_LINE_BYTES", 0)
    check = ExampleCheck("a.jsonl", b'{"a": 1}\n' * 10, 100)
    calls = 1
    while check.advance():
        calls += 1
    assert (calls, check.num_rows) == (4, 10)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.jsonl", b"\n" * 100),
        ("a.jsonl", b'{"a": 1}\n' + b" \n" * 100),
        ("a.csv", b"\n" * 100),
        ("a.csv", b"a,b\n" + b"\n" * 100),
        ("a.csv", b"a,b\n" + b"1,2\n" * 100),
    ],
)
def test_every_line_counts_as_work(name: str, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a blank one, and one of a long row: no call reads many lines, whatever the file holds."""
    decode, read = examples._decode, []
    monkeypatch.setattr(examples, "_decode", lambda number, line: (read.append(number), decode(number, line))[1])
    monkeypatch.setattr(examples, "PIECE_BYTES", 10 * examples._LINE_BYTES)
    check, more = ExampleCheck(name, data, 20_000), True
    with suppress(InvalidInput):
        while more:
            begun = len(read)
            more = check.advance()
            assert len(read) - begun <= 11
    assert len(read) >= 100


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_blank_lines_are_bounded(name: str) -> None:
    assert refusal(name, b"\n" * 1001) == "the file has more than 1000 blank lines, which is the maximum"


def test_a_row_of_many_lines_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a line is, because the reader of CSV takes the whole row at once."""
    monkeypatch.setattr(examples, "MAX_LINE_BYTES", 20 * examples._LINE_BYTES)
    assert count("a.csv", b'a,b\n1,"' + b"x\n" * 10 + b'"\n1,2\n') == 2
    assert count("a.csv", b"a,b\n" + b"1,2\n" * 100) == 100
    message = (
        "the row of line 22 has more than 2560 characters, which is the maximum; each of its lines counts as 128 more"
    )
    assert refusal("a.csv", b'a,b\n1,"' + b"x\n" * 100) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1}\n[1]\n', "line 2 is of the type list; each line must be a JSON object with the example's columns"),
        (b"{}", "line 1 is an empty object; each line must be a JSON object with the example's columns"),
        (b'{"a": 1', "line 1 is not JSON: Expecting ',' delimiter at column 8"),
        (b'{"a": ' + b"1" * 5000 + b"}", "line 1 has a number of too many digits"),
        (b'{"a": "\0"}', "line 1 has a NUL byte"),
        (b"", "the file has no rows; it needs at least one example"),
        (b"\n \n", "the file has no rows; it needs at least one example"),
        (b"{%s}" % b",".join(b'"%d": 1' % one for one in range(65)), "line 1 has 65 columns; a row may have 64"),
    ],
)
def test_a_line_that_is_no_example_is_named(data: bytes, message: str) -> None:
    assert refusal("a.jsonl", data) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'a,b\n"x', "line 2 is not CSV: unexpected end of data"),
        (b"a,\nx,y\n", "line 1 must name each column, by different names"),
        (b"text,text\na,b\n", "line 1 must name each column, by different names"),
        (b"a,b\n", "the file has no rows; it needs at least one example"),
        (b",".join(b"%d" % one for one in range(65)) + b"\n", "line 1 has 65 columns; a row may have 64"),
    ],
)
def test_a_table_that_is_none_is_refused(data: bytes, message: str) -> None:
    assert refusal("a.csv", data) == message


def test_rows_of_a_request_become_lines() -> None:
    rows = [{"text": "é\n", "label": 1}, {"text": "b", "label": None}]
    data = to_jsonl("examples", rows)
    assert [json.loads(line) for line in data.splitlines()] == rows
    assert count("a.jsonl", data) == 2
