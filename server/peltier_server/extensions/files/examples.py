"""Checks files of examples: UTF-8 text, one example a row, bounded rows and lines."""

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from peltier_adapters.artifact.header import has_more_tokens
from peltier_client.errors import InvalidInput
from peltier_client.protocol.trainings import MAX_COLUMNS

MAX_LINE_BYTES = 1024 * 1024
# Of a row; the parser takes a line at once.
MAX_ROW_TOKENS = 65_536
# A thread checks so many bytes in some ten milliseconds; then other tenants get their turn.
PIECE_BYTES = 512 * 1024
# Bytes of text that are checked in the time that a line takes beside its text.
_LINE_BYTES = 128
_DELIMITERS = {".csv": ",;\t|", ".tsv": "\t"}
_KINDS = (".jsonl", *_DELIMITERS)
_MARK = "\ufeff"
_BINARY = {b"\x1f\x8b": "is compressed by gzip", b"PK\x03\x04": "is a zip archive", b"PAR1": "is a Parquet file"}


def kind_of(name: str) -> str:
    """The suffix of a file's name in lower case. Raises `InvalidInput` for one that is not read."""
    kind = Path(name).suffix.lower()
    if kind not in _KINDS:
        raise InvalidInput(f"the file's name is {name[:80]!r}; it must end in .jsonl, .csv or .tsv")
    return kind


class ExampleCheck:
    """The check of one file, in pieces: `num_rows` counts the rows that have been read."""

    def __init__(self, name: str, data: bytes, max_rows: int) -> None:
        """Raises `InvalidInput` for a name or bytes of another kind of file."""
        kind = kind_of(name)
        for mark, what in _BINARY.items():
            if data.startswith(mark):
                raise InvalidInput(f"the file {what}; send it as JSONL or CSV text")
        self.num_rows = 0
        self._num_blank = 0
        self._max_rows = max_rows
        # Bytes of the lines that have been read, with `_LINE_BYTES` for each of them.
        self._work = 0
        lines = self._lines(data)
        self._rows = _json_rows(lines) if kind == ".jsonl" else _delimited_rows(lines, _DELIMITERS[kind])

    def advance(self) -> bool:
        """Checks the next lines, of about `PIECE_BYTES`. Returns whether more follow. Raises `InvalidInput` with the
        first line that breaks a rule, or for a file without rows."""
        limit = self._work + PIECE_BYTES
        for is_row in self._rows:
            self._count(is_row)
            if self._work >= limit:
                return True
        if not self.num_rows:
            raise InvalidInput("the file has no rows; it needs at least one example")
        return False

    def _count(self, is_row: bool) -> None:
        if is_row:
            self.num_rows += 1
        else:
            self._num_blank += 1
        for count, what in ((self.num_rows, "rows"), (self._num_blank, "blank lines")):
            if count > self._max_rows:
                raise InvalidInput(f"the file has more than {self._max_rows} {what}, which is the maximum")

    def _lines(self, data: bytes) -> Iterator[tuple[int, str]]:
        """The lines with their numbers and ends, decoded one by one."""
        number, start = 0, 0
        while start < len(data):
            number += 1
            end = data.find(b"\n", start, start + MAX_LINE_BYTES + 1) + 1
            if not end:
                end = len(data)
                if end - start > MAX_LINE_BYTES:
                    raise InvalidInput(f"line {number} has more than {MAX_LINE_BYTES} bytes, which is the maximum")
            self._work += end - start + _LINE_BYTES
            yield number, _decode(number, data[start:end])
            start = end


def _decode(number: int, line: bytes) -> str:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"line {number} is not UTF-8 text: {error.reason} 0x{line[error.start]:02x}; convert the file"
        ) from None
    if "\0" in text:
        raise InvalidInput(f"line {number} has a NUL byte")
    return text.removeprefix(_MARK) if number == 1 else text


def _json_rows(lines: Iterator[tuple[int, str]]) -> Iterator[bool]:
    """Whether each line is a row, and not blank."""
    for number, line in lines:
        is_row = not line.isspace()
        if is_row:
            _check_json(number, line)
        yield is_row


def _check_json(number: int, line: str) -> None:
    if len(line) > MAX_ROW_TOKENS and has_more_tokens(line.encode(), MAX_ROW_TOKENS):
        raise InvalidInput(f"line {number} has more than {MAX_ROW_TOKENS} strings, commas and brackets")
    try:
        row = _JSON.decode(line)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"line {number} is not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise InvalidInput(f"line {number} nests too many brackets") from None
    except OverflowError as error:
        raise InvalidInput(f"line {number} has {error}, which is not finite") from None
    except ValueError:
        raise InvalidInput(f"line {number} has a number of too many digits") from None
    if not isinstance(row, dict) or not row:
        raise InvalidInput(
            f"line {number} is {_shown(row)}; each line must be a JSON object with the example's columns"
        )
    if len(row) > MAX_COLUMNS:
        raise InvalidInput(f"line {number} has {len(row)} columns; a row may have {MAX_COLUMNS}")
    # Only escapes can bring them into text that was decoded.
    if "\\ud" in line or "\\uD" in line:
        check_encodable(f"line {number}", row)


def _shown(value: object) -> str:
    return "an empty object" if value == {} else f"of the type {type(value).__name__}"


def check_encodable(what: str, row: Mapping[str, Any]) -> str:
    """`row` as a line of JSON. Raises `InvalidInput` for text that UTF-8 cannot encode."""
    text = json.dumps(row, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} has a lone surrogate, which is no text") from None
    return text


def to_jsonl(what: str, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows of a request as a file. Raises `InvalidInput` for text that UTF-8 cannot encode."""
    lines = (check_encodable(f"row {number} of {what}", row) for number, row in enumerate(rows))
    return "".join(f"{line}\n" for line in lines).encode()


def _delimited_rows(lines: Iterator[tuple[int, str]], delimiters: str) -> Iterator[bool]:
    """Whether each row of cells, or blank line, is a row; the header is neither."""
    for number, line in lines:
        if line.isspace():
            yield False
        else:
            yield from _rows_below(number, line, lines, delimiters)


def _rows_below(number: int, header: str, lines: Iterator[tuple[int, str]], delimiters: str) -> Iterator[bool]:
    delimiter = max(delimiters, key=header.count)
    columns = _read_header(number, header, delimiter)
    texts = _Texts(lines)
    reader = csv.reader(texts, delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if len(cells) not in (0, columns):
                line = number + reader.line_num
                raise InvalidInput(f"line {line} has {len(cells)} cells; the first line names {columns} columns")
            texts.row_work = 0
            yield bool(cells)
    except csv.Error as error:
        raise InvalidInput(f"line {number + reader.line_num} is not CSV: {error}") from None


class _Texts:
    """The texts of lines. The lines of one row, whose cells may have line breaks, take together no longer than one line
    may: the reader takes all of them without a turn for others."""

    def __init__(self, lines: Iterator[tuple[int, str]]) -> None:
        self.row_work = 0
        self._lines = lines

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        number, text = next(self._lines)
        if self.row_work > MAX_LINE_BYTES:
            raise InvalidInput(
                f"the row of line {number} has more than {MAX_LINE_BYTES} characters, which is the maximum; each of "
                f"its lines counts as {_LINE_BYTES} more"
            )
        self.row_work += len(text) + _LINE_BYTES
        return text


def _read_header(number: int, header: str, delimiter: str) -> int:
    """The number of columns of the first line. Raises `InvalidInput` for one that names no or too many columns."""
    try:
        names = next(csv.reader([header], delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise InvalidInput(f"line {number} is not CSV: {error}") from None
    if len(names) > MAX_COLUMNS:
        raise InvalidInput(f"line {number} has {len(names)} columns; a row may have {MAX_COLUMNS}")
    if len(set(names)) < len(names) or not all(name.strip() for name in names):
        raise InvalidInput(f"line {number} must name each column, by different names")
    return len(names)


def _refuse_constant(name: str) -> NoReturn:
    raise OverflowError(f"the number {name}")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise OverflowError(f"the number {text[:20]}")
    return number


_JSON = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
