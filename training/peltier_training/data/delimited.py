"""Rows of a CSV or TSV file. The first line names the columns and thereby determines the separator."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from peltier_training.data.raw_row import RawRow, no_column
from peltier_training.errors import TrainingError

_DELIMITERS = {".csv": ",;\t|", ".tsv": "\t"}
_NAMES = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}


def read_delimited(path: Path, text: str, wanted: list[str], kind: str) -> list[RawRow]:
    """A row for each record of a file of `kind` .csv or .tsv. Raises a `TrainingError` if the first line does not name
    every column of `wanted`.

    A row's line is the first line of its record. After an unreadable record, reading continues in the next line, so
    that an open quote affects one row only.
    """
    lines = list(io.StringIO(text, newline=""))
    if not lines:
        return []
    columns, first, delimiter = _header(path, lines, wanted, kind)
    return list(_records(lines, first, columns, delimiter))


def _header(path: Path, lines: Sequence[str], wanted: Sequence[str], kind: str) -> tuple[list[str], int, str]:
    """The columns, their number of lines, and the separator: the one that yields every column of `wanted`."""
    headers = {delimiter: _first_record(lines, delimiter) for delimiter in _DELIMITERS[kind]}
    fits = [delimiter for delimiter, (columns, _) in headers.items() if set(wanted) <= set(columns)]
    delimiter = fits[0] if fits else max(headers, key=lambda delimiter: len(headers[delimiter][0]))
    columns, first = headers[delimiter]
    if not columns:
        raise TrainingError(f"{path}:1 is not CSV: its first line does not name columns")
    for column in wanted:
        if column not in columns:
            raise _no_tabs(path, lines, kind) or no_column(path, column, columns)
        if columns.count(column) > 1:
            raise TrainingError(f"{path} has column {column!r} twice")
    return columns, first, delimiter


def _no_tabs(path: Path, lines: Sequence[str], kind: str) -> TrainingError | None:
    """The error of a .tsv file that has another separator."""
    others = [mark for mark in _DELIMITERS[".csv"] if mark in lines[0]]
    if kind == ".csv" or "\t" in others or not others:
        return None
    separator = _NAMES[others[0]]
    return TrainingError(f"{path} is named .tsv but its first line is separated by {separator}; name it .csv")


def _first_record(lines: Sequence[str], delimiter: str) -> tuple[list[str], int]:
    """Its cells and its last line. No cells if quotes do not close, which rules this delimiter out."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        return next((cells for cells in reader if cells), []), reader.line_num
    except csv.Error:
        return [], 1


def _records(lines: Sequence[str], first: int, columns: Sequence[str], delimiter: str) -> Iterator[RawRow]:
    start = first
    while start < len(lines):
        rest = (lines[number] for number in range(start, len(lines)))
        reader = csv.reader(rest, delimiter=delimiter, strict=True)
        begun = 0
        try:
            for cells in reader:
                if cells:
                    yield _row(start + begun + 1, cells, columns)
                begun = reader.line_num
            return
        except csv.Error as error:
            yield RawRow(start + begun + 1, problem=f"is not CSV: {error}")
            start += begun + 1


def _row(line: int, cells: Sequence[str], columns: Sequence[str]) -> RawRow:
    if len(cells) != len(columns):
        return RawRow(line, problem=f"has {len(cells)} cells; the first line names {len(columns)} columns")
    return RawRow(line, dict(zip(columns, cells, strict=True)))
