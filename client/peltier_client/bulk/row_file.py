"""Rows of a JSONL, CSV or TSV file, plain or gzipped, read one by one rather than as a whole.

`peltier train` reads the same formats; its reader cannot be imported here because training needs torch.
"""

import csv
import gzip
import io
import json
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from peltier_client.errors import InvalidInput
from peltier_client.protocol import TextTuple

_KINDS = (".jsonl", ".csv", ".tsv")
_DELIMITERS = {".csv": ",;\t|", ".tsv": "\t"}
# A column that is missing in this many first rows does not exist.
_NUM_FIRST_ROWS = 100
_MAX_COLUMNS = 3


@dataclass(frozen=True)
class Row:
    """One row: its first line, and its cells by column or the `problem` that makes it unreadable."""

    line: int
    cells: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True)
class RowFile:
    """An open file; `size_bytes` and `position` count bytes on the disk."""

    path: Path
    rows: Iterator[Row]
    size_bytes: int
    raw: BinaryIO

    @property
    def position(self) -> int:
        """Bytes read so far."""
        return self.raw.tell()


@contextmanager
def open_rows(path: Path, columns: Sequence[str]) -> Iterator[RowFile]:
    """The rows of `path`; `InvalidInput` if it is not a data file or its first rows lack one of `columns`."""
    kind = Path(path.name.removesuffix(".gz")).suffix
    if kind not in _KINDS:
        raise InvalidInput(f"{path} is not a data file; its name must end in .jsonl, .csv or .tsv, or these with .gz")
    with path.open("rb") as raw:
        data = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        # Invalid UTF-8 affects only its own row. Spreadsheets write a byte order mark.
        text = io.TextIOWrapper(data, "utf-8-sig", errors="surrogateescape", newline="")
        lines = _readable(path, text)
        rows = _json_rows(lines) if kind == ".jsonl" else _delimited_rows(path, lines, columns, _DELIMITERS[kind])
        yield RowFile(path, _with_columns(path, rows, columns), path.stat().st_size, raw)


def read_input(row: Row, columns: Sequence[str]) -> str | TextTuple:
    """The text of one column, or the texts of two or three. Raises `InvalidInput` if the row has none."""
    if row.problem is not None:
        raise InvalidInput(row.problem)
    for column in columns:
        if column not in row.cells:
            raise InvalidInput(f"has no column {column!r}; it has {_names(row.cells)}")
        if not isinstance(row.cells[column], str):
            raise InvalidInput(f"column {column!r} is {str(row.cells[column])[:80]!r}; it must be a text")
    first, *others = (str(row.cells[column]) for column in columns)
    return (first, *others) if others else first  # type: ignore[return-value]


def check_columns(columns: Sequence[str]) -> None:
    """Raise `InvalidInput` unless there are one, two or three columns."""
    if not 1 <= len(columns) <= _MAX_COLUMNS:
        raise InvalidInput(f"{len(columns)} text columns were given; a task has one, two or three")


def _readable(path: Path, lines: Iterator[str]) -> Iterator[str]:
    try:
        yield from lines
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from None


def _with_columns(path: Path, rows: Iterator[Row], columns: Sequence[str]) -> Iterator[Row]:
    first = list(islice(rows, _NUM_FIRST_ROWS))
    found = list(dict.fromkeys(column for row in first for column in row.cells))
    for column in columns:
        if found and column not in found:
            raise InvalidInput(f"{path} has no column {column!r}; it has {_names(found)}")
    return chain(first, rows)


def _json_rows(lines: Iterator[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _json_row(number, line)


def _json_row(number: int, line: str) -> Row:
    if not _is_text(line):
        return Row(number, problem="is not UTF-8 text")
    try:
        cells = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Row(number, problem=f"is not JSON: {error}")
    if not isinstance(cells, dict):
        return Row(number, problem=f"is {type(cells).__name__}; each line must be a JSON object")
    return Row(number, cells)


def _delimited_rows(path: Path, lines: Iterator[str], wanted: Sequence[str], delimiters: str) -> Iterator[Row]:
    """The rows with the first of `delimiters` that yields every `wanted` column."""
    first, header = next(((number, line) for number, line in enumerate(lines, 1) if line.strip()), (0, None))
    if header is None:
        return iter(())
    if not _is_text(header):
        raise InvalidInput(f"{path} has a header that is not UTF-8 text")
    try:
        headers = {delimiter: next(csv.reader([header], delimiter=delimiter)) for delimiter in delimiters}
    except csv.Error as error:
        raise InvalidInput(f"{path} has no readable header: {error}") from None
    fits = [delimiter for delimiter, names in headers.items() if set(wanted) <= set(names)]
    delimiter = fits[0] if fits else max(headers, key=lambda delimiter: len(headers[delimiter]))
    names = headers[delimiter]
    for column in wanted:
        if column not in names:
            raise InvalidInput(f"{path} has no column {column!r}; it has {_names(names)}")
        if names.count(column) > 1:
            raise InvalidInput(f"{path} has column {column!r} twice")
    return _records(lines, first + 1, delimiter, names)


def _records(lines: Iterator[str], number: int, delimiter: str, names: Sequence[str]) -> Iterator[Row]:
    """After an unreadable record, reading continues in the next line, so that an open quote affects one row only."""
    again: deque[str] = deque()
    taken: list[str] = []

    def take() -> Iterator[str]:
        while (line := again.popleft() if again else next(lines, None)) is not None:
            taken.append(line)
            yield line

    is_open = True
    while is_open:
        try:
            for cells in csv.reader(take(), delimiter=delimiter, strict=True):
                if cells:
                    yield _record(number, cells, names)
                number += len(taken)
                taken.clear()
            is_open = False
        except csv.Error as error:
            yield Row(number, problem=f"is not CSV: {error}")
            again.extendleft(reversed(taken[1:]))
            number += 1
            taken.clear()


def _record(number: int, cells: Sequence[str], names: Sequence[str]) -> Row:
    if len(cells) != len(names):
        return Row(number, problem=f"has {len(cells)} cells; the first line names {len(names)} columns")
    if not all(map(_is_text, cells)):
        return Row(number, problem="is not UTF-8 text")
    return Row(number, dict(zip(names, cells, strict=True)))


def _is_text(line: str) -> bool:
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


def _names(columns: Any) -> str:
    return ", ".join(map(repr, columns)) or "none"
