"""Rows of a CSV or TSV file. The first line names the columns, and by that says what separates them."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from peltier_training.data.raw_row import RawRow, no_column
from peltier_training.errors import TrainingError

_DELIMITERS = {".csv": ",;\t|", ".tsv": "\t"}
_NAMES = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}


def read_delimited(path: Path, text: str, wanted: list[str], kind: str) -> list[RawRow]:
    """A row for each record of a `kind` of file, .csv or .tsv; a `TrainingError` where the first line does not name
    every column of `wanted`.

    A record begins in its row's line. Reading goes on in the next line after one that cannot be read, so that a quote
    that is never closed spoils one row and not all that follow.
    """
    lines = list(io.StringIO(text, newline=""))
    if not lines:
        return []
    columns, first, delimiter = _header(path, lines, wanted, kind)
    return list(_records(lines, first, columns, delimiter))


def _header(path: Path, lines: Sequence[str], wanted: Sequence[str], kind: str) -> tuple[list[str], int, str]:
    """The columns, the number of lines that they take, and what separates them: what makes columns of all `wanted`."""
    headers = {delimiter: _first_record(lines, delimiter) for delimiter in _DELIMITERS[kind]}
    fits = [delimiter for delimiter, (columns, _) in headers.items() if set(wanted) <= set(columns)]
    delimiter = fits[0] if fits else max(headers, key=lambda one: len(headers[one][0]))
    columns, first = headers[delimiter]
    if not columns:
        raise TrainingError(f"{path}:1 is not CSV: its first line does not name columns")
    for column in wanted:
        if column not in columns:
            raise _unlike(path, lines, kind) or no_column(path, column, columns)
        if columns.count(column) > 1:
            raise TrainingError(f"{path} has column {column!r} twice")
    return columns, first, delimiter


def _unlike(path: Path, lines: Sequence[str], kind: str) -> TrainingError | None:
    """Why a .tsv file without tabs is none."""
    if "\t" in lines[0] or kind == ".csv":
        return None
    others = [one for one in _DELIMITERS[".csv"] if one in lines[0]]
    if not others:
        return None
    return TrainingError(
        f"{path} is named .tsv, and its first line has no tab; it is separated by {_NAMES[others[0]]}: name it .csv"
    )


def _first_record(lines: Sequence[str], delimiter: str) -> tuple[list[str], int]:
    """Its cells and the line it ends in; no cells where quotes do not close at this delimiter, which is not meant."""
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
        return RawRow(
            line, problem=f"does not have the {len(columns)} columns of the first line; it has {len(cells)} cells"
        )
    return RawRow(line, dict(zip(columns, cells, strict=True)))
