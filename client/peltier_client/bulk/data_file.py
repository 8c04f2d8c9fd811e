"""Rows of a JSONL, CSV or TSV file, plain or gzipped."""

import csv
import io
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from peltier_client.bulk.data_text import encoding_problem, near_name, open_text, read_text
from peltier_client.errors import InvalidInput
from peltier_client.protocol import TextTuple

_DELIMITERS = {".csv": ",;\t|", ".tsv": "\t"}
_KINDS = (".jsonl", *_DELIMITERS)
_DELIMITER_NAMES = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}
# When rows are streamed, a column that is missing in this many first rows does not exist.
_NUM_FIRST_ROWS = 100
_MAX_COLUMNS = 3


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
