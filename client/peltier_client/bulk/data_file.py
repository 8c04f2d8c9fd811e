"""Rows of a JSONL, CSV or TSV file, plain or gzipped, decoded by its byte order mark or as UTF-8."""

import codecs
import csv
import gzip
import io
import json
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from peltier_client.errors import InvalidInput
from peltier_client.protocol.predict import TextTuple

# The mark of UTF-32 begins with that of UTF-16, so it is checked first.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_BINARY = {
    b"\x1f\x8b": "is compressed by gzip, but its name does not end in .gz",
    b"PK\x03\x04": "is a zip archive such as a spreadsheet; save it as CSV",
    b"PAR1": "is a Parquet file; save it as JSONL or CSV",
}
_DELIMITERS = {".csv": ",;\t|", ".tsv": "\t"}
_KINDS = (".jsonl", *_DELIMITERS)
_DELIMITER_NAMES = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}
# When rows are streamed, a column that is missing in this many first rows does not exist.
_NUM_FIRST_ROWS = 100
_MAX_COLUMNS = 3


@dataclass(frozen=True)
class DataText:
    """The text of an open file. `raw` are its bytes on the disk; invalid UTF-8 is read as lone surrogates."""

    path: Path
    text: io.TextIOWrapper
    raw: BinaryIO

    def lines(self) -> Iterator[str]:
        """The lines with their ends. Raises `InvalidInput` when the file cannot be read further."""
        with _refusals(self.path, self.text.encoding):
            yield from self.text


@contextmanager
def open_text(path: Path) -> Iterator[DataText]:
    """The text of `path`, decompressed if its name ends in .gz. Raises `InvalidInput` if it is not a text file."""
    with _refusals(path):
        raw = path.open("rb")
    with raw:
        data = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        with _refusals(path):
            start = data.peek(4)
        for mark, what in _BINARY.items():
            if start.startswith(mark):
                raise InvalidInput(f"{path} {what}")
        # Spreadsheets write a byte order mark. Invalid UTF-8 affects only its own row.
        encoding = next((encoding for mark, encoding in _MARKS if start.startswith(mark)), "utf-8-sig")
        errors = "surrogateescape" if encoding == "utf-8-sig" else "strict"
        yield DataText(path, io.TextIOWrapper(data, encoding, errors, newline=""), raw)


def read_text(path: Path) -> str:
    """The whole text of `path`. Raises `InvalidInput` with the first line that is not UTF-8 text or has a NUL byte."""
    with open_text(path) as data:
        text = "".join(data.lines())
    if encoding_problem(text) is not None:
        problems = ((number, encoding_problem(line)) for number, line in enumerate(text.split("\n"), 1))
        number, problem = next((number, problem) for number, problem in problems if problem is not None)
        raise InvalidInput(f"{path}:{number} {problem}")
    if "\0" in text:
        number = text.count("\n", 0, text.index("\0")) + 1
        raise InvalidInput(f"{path}:{number} has a NUL byte; a UTF-16 file must begin with a byte order mark")
    return text


def encoding_problem(text: str) -> str | None:
    """Why text of an `open_text` is not UTF-8, as a clause that follows its place in messages; None if it is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        pass
    else:
        return None
    try:
        text.encode(errors="surrogateescape").decode()
    except UnicodeDecodeError as error:
        return (
            f"is not UTF-8 text: {error.reason} 0x{error.object[error.start]:02x}; convert the file, from Latin-1 by "
            "iconv -f LATIN1 -t UTF-8"
        )
    raise AssertionError("a text that is not UTF-8 has a byte that is not")


def near_path(path: Path) -> str:
    """A clause with the most similar existing name, for the part of `path` that does not exist."""
    folder = path.parent
    while not folder.is_dir() and folder != folder.parent:
        path, folder = folder, folder.parent
    try:
        return near_name(path.name, [sibling.name for sibling in folder.iterdir()])
    except OSError:
        return ""


def near_name(name: str, known: Iterable[str]) -> str:
    """A clause with the most similar of the `known` names; empty if none is similar."""
    found = get_close_matches(name, list(known), n=1)
    return f", the nearest is {found[0]!r}" if found else ""


@contextmanager
def _refusals(path: Path, encoding: str = "") -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InvalidInput(f"{path} does not exist{near_path(path)}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} begins like {encoding.upper()} text but is not: {error.reason}") from None


@dataclass(frozen=True)
class DataRow:
    """One row: its first line, and its cells by column or the `problem` that makes it unreadable, a clause that follows
    its place in messages."""

    line: int
    cells: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True)
class DataFile:
    """An open file; `size_bytes` and `position` count bytes on the disk."""

    path: Path
    rows: Iterator[DataRow]
    size_bytes: int
    raw: BinaryIO

    @property
    def position(self) -> int:
        """Bytes read so far."""
        return self.raw.tell()


@contextmanager
def open_rows(path: Path, columns: Sequence[str]) -> Iterator[DataFile]:
    """The rows of `path`, read one by one. Raises `InvalidInput` if it is not a data file or its first rows lack one of
    `columns`."""
    kind = check_kind(path)
    with open_text(path) as data:
        rows = _with_columns(path, _rows(path, kind, data.lines(), columns), columns, _NUM_FIRST_ROWS)
        yield DataFile(path, rows, path.stat().st_size, data.raw)


def read_rows(path: Path, columns: Sequence[str]) -> list[DataRow]:
    """All rows of `path`. Raises `InvalidInput` if it is not a data file, if all its rows lack one of `columns`, or if
    a line is not UTF-8 text."""
    kind = check_kind(path)
    lines = io.StringIO(read_text(path), newline="")
    return list(_with_columns(path, _rows(path, kind, lines, columns), columns, None))


def data_kind(path: Path) -> str:
    """The suffix of a file's name, in lower case and without .gz."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def check_kind(path: Path) -> str:
    """The `data_kind` of a file of rows. Raises `InvalidInput` for other files."""
    kind = data_kind(path)
    if kind not in _KINDS:
        raise InvalidInput(f"{path} is not a data file; its name must end in .jsonl, .csv or .tsv, or these with .gz")
    return kind


def read_input(row: DataRow, columns: Sequence[str]) -> str | TextTuple:
    """The text of one column, or the texts of two or three. Raises `InvalidInput` if the row has none."""
    if row.problem is not None:
        raise InvalidInput(row.problem)
    for column in columns:
        if column not in row.cells:
            raise InvalidInput(f"has {no_column(column, row.cells)}")
        if not isinstance(row.cells[column], str):
            raise InvalidInput(f"column {column!r} is {str(row.cells[column])[:80]!r}; it must be a text")
    first, *others = (str(row.cells[column]) for column in columns)
    return (first, *others) if others else first  # type: ignore[return-value]


def check_columns(columns: Sequence[str]) -> None:
    """Raise `InvalidInput` unless there are one, two or three columns."""
    if not 1 <= len(columns) <= _MAX_COLUMNS:
        raise InvalidInput(f"{len(columns)} text columns were given; a task has one, two or three")


def no_column(column: str, columns: Iterable[str]) -> str:
    """The end of a message that refuses a file or a row without `column`; it has `columns`."""
    has = ", ".join(map(repr, columns)) or "none"
    return f"no column {column!r}{near_name(column, columns)}; it has {has}"


def _rows(path: Path, kind: str, lines: Iterable[str], wanted: Sequence[str]) -> Iterator[DataRow]:
    if kind == ".jsonl":
        return (_json_row(number, line) for number, line in enumerate(lines, 1) if line.strip())
    return _delimited_rows(path, kind, _Lines(lines), wanted)


def _with_columns(
    path: Path, rows: Iterator[DataRow], columns: Sequence[str], num_first: int | None
) -> Iterator[DataRow]:
    first = list(islice(rows, num_first))
    found = list(dict.fromkeys(column for row in first for column in row.cells))
    for column in columns:
        if found and column not in found:
            raise InvalidInput(f"{path} has {no_column(column, found)}")
    return chain(first, rows)


def _json_row(number: int, line: str) -> DataRow:
    if (problem := encoding_problem(line)) is not None:
        return DataRow(number, problem=problem)
    try:
        cells = json.loads(line)
    except json.JSONDecodeError as error:
        return DataRow(number, problem=f"is not JSON: {error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:  # too many digits or brackets
        return DataRow(number, problem=f"is not JSON: {error}")
    if not isinstance(cells, dict):
        return DataRow(number, problem=f"is {type(cells).__name__}; each line must be a JSON object")
    return DataRow(number, cells)


class _Lines:
    """Lines that can be read more than once."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._again: deque[str] = deque()
        self._taken: list[str] = []

    def take(self) -> Iterator[str]:
        """The lines that follow, each of which counts as taken."""
        while (line := self._again.popleft() if self._again else next(self._lines, None)) is not None:
            self._taken.append(line)
            yield line

    def keep(self, count: int | None = None) -> int:
        """Finish with the first `count` taken lines, None for all, and return their number. Others are read again."""
        kept = self._taken[:count]
        self._again.extendleft(reversed(self._taken[len(kept) :]))
        self._taken.clear()
        return len(kept)


@dataclass(frozen=True)
class _Header:
    """The first record of a file, by one delimiter."""

    delimiter: str
    columns: Sequence[str] = ()
    num_lines: int = 0
    problem: str | None = None


def _delimited_rows(path: Path, kind: str, lines: _Lines, wanted: Sequence[str]) -> Iterator[DataRow]:
    header = _find_header(path, kind, lines, wanted)
    return _records(lines, header) if header.columns else iter(())


def _find_header(path: Path, kind: str, lines: _Lines, wanted: Sequence[str]) -> _Header:
    """The header by the first delimiter that yields every `wanted` column; without columns if there are only blank
    lines."""
    headers = [_read_header(lines, delimiter) for delimiter in _DELIMITERS[kind]]
    fits = [header for header in headers if set(wanted) <= set(header.columns)]
    header = fits[0] if fits else max(headers, key=lambda header: len(header.columns))
    if not header.columns:
        if header.problem is not None:
            raise InvalidInput(f"{path} has no readable header: {header.problem}")
        return header
    if (problem := encoding_problem("".join(header.columns))) is not None:
        raise InvalidInput(f"{path} has a header that {problem}")
    for column in wanted:
        if column not in header.columns:
            raise InvalidInput(f"{path} {_no_tabs(kind, header.columns) or f'has {no_column(column, header.columns)}'}")
        if header.columns.count(column) > 1:
            raise InvalidInput(f"{path} has column {column!r} twice")
    for _ in islice(lines.take(), header.num_lines):
        pass
    lines.keep()
    return header


def _read_header(lines: _Lines, delimiter: str) -> _Header:
    reader = csv.reader(lines.take(), delimiter=delimiter, strict=True)
    try:
        columns = next((cells for cells in reader if any(map(str.strip, cells))), [])
        return _Header(delimiter, columns, reader.line_num)
    except csv.Error as error:
        return _Header(delimiter, problem=str(error))
    finally:
        lines.keep(0)


def _no_tabs(kind: str, columns: Sequence[str]) -> str | None:
    """The clause that refuses a .tsv file whose first line has another delimiter than tabs."""
    others = [mark for mark in _DELIMITERS[".csv"] if mark in columns[0]]
    if kind == ".csv" or len(columns) > 1 or not others:
        return None
    return f"is named .tsv but its first line is separated by {_DELIMITER_NAMES[others[0]]}; name it .csv"


def _records(lines: _Lines, header: _Header) -> Iterator[DataRow]:
    """After an unreadable record, reading continues in the next line, so that an open quote affects one row only."""
    number, is_open = header.num_lines + 1, True
    while is_open:
        try:
            for cells in csv.reader(lines.take(), delimiter=header.delimiter, strict=True):
                if cells:
                    yield _record(number, cells, header.columns)
                number += lines.keep()
            is_open = False
        except csv.Error as error:
            yield DataRow(number, problem=f"is not CSV: {error}")
            number += lines.keep(1)


def _record(number: int, cells: Sequence[str], names: Sequence[str]) -> DataRow:
    if len(cells) != len(names):
        return DataRow(number, problem=f"has {len(cells)} cells; the first line names {len(names)} columns")
    for cell in cells:
        if (problem := encoding_problem(cell)) is not None:
            return DataRow(number, problem=problem)
    return DataRow(number, dict(zip(names, cells, strict=True)))
