"""Files of rows, as they are streamed."""

import gzip
import io
import random
import tracemalloc
import weakref
from pathlib import Path

import pytest
from peltier_client.bulk.data_file import DataRow, check_columns, near_path, open_rows, read_input, read_rows, read_text
from peltier_client.errors import InvalidInput

# The text, its decompression and the file have a buffer each.
BUFFER_BYTES = 4 * getattr(gzip, "READ_BUFFER_SIZE", io.DEFAULT_BUFFER_SIZE)


def rows_of(path: Path, *columns: str) -> list[DataRow]:
    """Every row of the file."""
    with open_rows(path, columns or ("text",)) as file:
        return list(file.rows)


def write(path: Path, data: str | bytes) -> Path:
    """The file, compressed where its name says so."""
    content = data.encode() if isinstance(data, str) else data
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "data", "lines"),
    [
        ("f.jsonl", '\ufeff{"text": "a"}\n\n{"text": "b", "label": 1}', [1, 3]),
        ("f.csv", '\ufefftext,label\r\n"a",1\r\n\r\n"b",2\r\n', [2, 4]),
        ("f.csv", "text;label\na;1\nb;2\n", [2, 3]),
        ("f.csv", '\ntext,label\n"a",1\nb,2', [3, 4]),
        ("f.tsv", "label\ttext\n1\ta\n2\tb\n", [2, 3]),
    ],
)
def test_each_kind_of_file(tmp_path: Path, name: str, data: str, lines: list[int], suffix: str) -> None:
    """Compressed or not, with a byte order mark or not; rows are named by the line that they begin in."""
    found = rows_of(write(tmp_path / f"{name}{suffix}", data))
    assert [row.cells["text"] for row in found] == ["a", "b"]
    assert [row.line for row in found] == lines


def test_a_bad_row_spoils_no_other(tmp_path: Path) -> None:
    """Whatever is wrong with a line, those after it are read; so it is after a quote that is never closed."""
    lines = [b'{"text": "a"}', b"{", b'["a"]', b'{"text": "\xff"}', b'{"text": "b"}']
    found = rows_of(write(tmp_path / "f.jsonl", b"\n".join(lines)))
    assert [row.problem is None for row in found] == [True, False, False, False, True]
    assert [str(row.problem)[:11] for row in found[1:4]] == ["is not JSON", "is list; ea", "is not UTF-"]
    records = [b"text,label", b"a,1", b'"open,2', b"b", b"\xff,3", b'"two\nlines",4', b'x"y,5', b'"c"d,6', b"e,7"]
    found = rows_of(write(tmp_path / "f.csv", b"\n".join(records)))
    problems = {row.line: row.problem for row in found if row.problem is not None}
    assert sorted(problems) == [3, 4, 5, 9]
    assert "has 1 cells; the first line names 2 columns" in str(problems[4])
    assert {row.line: row.cells["text"] for row in found if row.problem is None} == {
        2: "a", 6: "two\nlines", 8: 'x"y', 10: "e",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("f.txt", "a", "must end in .jsonl, .csv or .tsv"),
        ("f.jsonl", '{"txt": "a"}\n{"label": 1}', "has no column 'text', the nearest is 'txt'; it has 'txt', 'label'"),
        ("f.csv", "txt,label\na,1\n", "has no column 'text', the nearest is 'txt'; it has 'txt', 'label'"),
        ("f.csv", "text,text\na,1\n", "has column 'text' twice"),
        ("f.jsonl.gz", b"no gzip", "cannot be read"),
        ("f.csv", "text,größe\na,1\n".encode("latin-1"), "has a header that is not UTF-8 text"),
        ("f.csv", f"text,{'x' * 140_000}\na,1\n", "has no readable header: field larger than field limit"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(tmp_path: Path, name: str, data: str | bytes, sentence: str) -> None:
    """At once, with the reason, and not once a row."""
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(InvalidInput, match=sentence):
        rows_of(path)


def test_a_file_that_breaks_off_is_said(tmp_path: Path) -> None:
    """A compressed file without its end is no shorter file."""
    path = write(tmp_path / "f.jsonl.gz", "".join(f'{{"text": "{number}"}}\n' for number in range(5_000)))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidInput, match="cannot be read"):
        rows_of(path)


def test_what_an_input_is(tmp_path: Path) -> None:
    """One text, or as many as there are columns; a cell that is no text says so."""
    row = DataRow(1, {"a": "x", "b": "y", "c": "z", "n": 3})
    assert read_input(row, ["a"]) == "x"
    assert read_input(row, ["a", "b", "c"]) == ("x", "y", "z")
    for bad, columns in ((row, ["n"]), (row, ["d"]), (DataRow(2, problem="is bad"), ["a"])):
        with pytest.raises(InvalidInput):
            read_input(bad, columns)
    for columns in ([], list("abcd")):
        with pytest.raises(InvalidInput, match="text columns were given"):
            check_columns(columns)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_row_is_read_when_it_is_asked_for(tmp_path: Path, kind: str, suffix: str) -> None:
    """No more of the file is read than the rows so far, a hundred more, and a buffer; a row that was given is not
    kept."""
    num_rows, rng = 1000, random.Random(1)
    rows = [f"{rng.getrandbits(4000):x}" for _ in range(num_rows)]
    lines = [f'{{"text": "{row}"}}\n' if kind == "jsonl" else f"{row},1\n" for row in rows]
    path = write(tmp_path / f"f.{kind}{suffix}", "".join((["text,label\n"] if kind == "csv" else []) + lines))
    with open_rows(path, ["text"]) as file:
        row_bytes = file.size_bytes / num_rows
        last = None
        for number, row in enumerate(file.rows, 1):
            assert row.cells["text"] == rows[number - 1]
            assert file.position <= (number + 100) * row_bytes + BUFFER_BYTES
            assert last is None or last() is None or number <= 101
            last = weakref.ref(row)
        assert file.position == file.size_bytes


@pytest.mark.slow  # The gate counts the bytes that are read before each row, in the test above.
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_large_file_is_never_in_memory(tmp_path: Path, kind: str) -> None:
    """Reading 20 MB of rows holds less than a tenth of that at any time."""
    text = "x" * 1000
    row = f'{{"text": "{text}"}}\n' if kind == "jsonl" else f"{text},1\n"
    path = write(tmp_path / f"f.{kind}.gz", ("text,label\n" if kind == "csv" else "") + 20_000 * row)
    tracemalloc.start()
    try:
        with open_rows(path, ["text"]) as file:
            assert sum(row.problem is None for row in file.rows) == 20_000
            assert file.position == file.size_bytes
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
@pytest.mark.parametrize("name", ["f.jsonl", "f.csv"])
def test_rows_of_a_marked_encoding_are_streamed(tmp_path: Path, name: str, encoding: str) -> None:
    """The byte order mark names the encoding, as in a file that is read as a whole."""
    data = '{"text": "é"}\n' if name == "f.jsonl" else "text\né\n"
    path = write(tmp_path / name, data.encode(encoding))
    assert [row.cells for row in rows_of(path)] == [{"text": "é"}] == [row.cells for row in read_rows(path, ["text"])]


def test_invalid_text_refuses_a_file_that_is_read_as_a_whole(tmp_path: Path) -> None:
    """When rows are streamed, it affects one row only."""
    path = write(tmp_path / "f.jsonl", b'{"text": "a"}\n{"text": "caf\xe9"}\n')
    assert [row.problem is None for row in rows_of(path)] == [True, False]
    with pytest.raises(InvalidInput, match=r"f\.jsonl:2 is not UTF-8 text: .* 0xe9; .* iconv"):
        read_rows(path, ["text"])


def test_a_column_may_be_missing_in_the_first_rows(tmp_path: Path) -> None:
    """Rows that are streamed need it among the first hundred; in a file that is read as a whole any row may have it."""
    path = write(tmp_path / "f.jsonl", '{"other": 1}\n' * 100 + '{"text": "a"}\n')
    with pytest.raises(InvalidInput, match="has no column 'text'; it has 'other'"):
        rows_of(path)
    assert read_rows(path, ["text"])[-1] == DataRow(101, {"text": "a"})


TEXT = "text,label\ncafé ☕,1\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz"])
def test_unicode_is_read_by_its_mark(tmp_path: Path, encoding: str, name: str):
    """UTF-8 with a mark or without, UTF-16 and UTF-32 with one; packed or not."""
    data = TEXT.encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert read_text(tmp_path / name) == TEXT


def test_big_endian_marks_are_read(tmp_path: Path):
    """As other machines write them."""
    for encoding in ("utf-16-be", "utf-32-be"):
        (tmp_path / "d.csv").write_bytes(f"\ufeff{TEXT}".encode(encoding))
        assert read_text(tmp_path / "d.csv") == TEXT


BAD = {
    "latin-1": ("a\ncaf\xe9\n".encode("latin-1"), ":2 is not UTF-8 text: .* 0xe9; .* iconv -f LATIN1 -t UTF-8"),
    "utf-16 without a mark": (TEXT.encode("utf-16-le")[:20], ":1 has a NUL byte; a UTF-16 file must begin with a byte"),
    "half a letter": ("ab".encode("utf-16")[:-1], " begins like UTF-16 text but is not: truncated data"),
    "gzip": (gzip.compress(b"a"), r" is compressed by gzip, but its name does not end in \.gz"),
    "spreadsheet": (b"PK\x03\x04rest", " is a zip archive such as a spreadsheet; save it as CSV"),
    "parquet": (b"PAR1rest", " is a Parquet file; save it as JSONL or CSV"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_text_is_refused_by_what_it_is(tmp_path: Path, case: str):
    """Never read as garbage."""
    data, reason = BAD[case]
    (tmp_path / "d.csv").write_bytes(data)
    with pytest.raises(InvalidInput, match=rf"d\.csv{reason}"):
        read_text(tmp_path / "d.csv")


def test_a_mistyped_path_is_answered_with_the_nearest(tmp_path: Path):
    """The file, or the folder above it that is not there; nothing where nothing is like it."""
    (tmp_path / "reviews").mkdir()
    (tmp_path / "reviews" / "train.jsonl").touch()
    assert near_path(tmp_path / "reviews" / "trian.jsonl") == ", the nearest is 'train.jsonl'"
    assert near_path(tmp_path / "reveiws" / "train.jsonl") == ", the nearest is 'reviews'"
    assert near_path(tmp_path / "reviews" / "x") == ""
    with pytest.raises(InvalidInput, match=r"trian\.jsonl does not exist, the nearest is 'train\.jsonl'$"):
        read_text(tmp_path / "reviews" / "trian.jsonl")
