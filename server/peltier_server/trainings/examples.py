"""Checks files of examples: UTF-8 text, one example a row, bounded rows and lines."""

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from peltier_client.errors import InvalidInput
from peltier_client.protocol import MAX_COLUMNS

MAX_LINE_BYTES = 1024 * 1024
# A thread checks so many bytes in some ten milliseconds; then other tenants get their turn.
PIECE_BYTES = 512 * 1024
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
        self._max_rows = max_rows
        self._position = 0
        lines = self._lines(data)
        self._rows = _json_rows(lines) if kind == ".jsonl" else _delimited_rows(lines, _DELIMITERS[kind])

    def advance(self) -> bool:
        """Checks the next rows, of about `PIECE_BYTES`. Returns whether more follow. Raises `InvalidInput` with the
        first line that breaks a rule, or for a file without rows."""
        limit = self._position + PIECE_BYTES
        for _ in self._rows:
            self.num_rows += 1
            if self.num_rows > self._max_rows:
                raise InvalidInput(f"the file has more than {self._max_rows} rows, which is the maximum")
            if self._position >= limit:
                return True
        if not self.num_rows:
            raise InvalidInput("the file has no rows; it needs at least one example")
        return False

    def _lines(self, data: bytes) -> Iterator[tuple[int, str]]:
        """The lines with their numbers and ends, decoded one by one."""
        number = 0
        while self._position < len(data):
            number, start = number + 1, self._position
            end = data.find(b"\n", start, start + MAX_LINE_BYTES + 1) + 1
            if not end:
                end = len(data)
                if end - start > MAX_LINE_BYTES:
                    raise InvalidInput(f"line {number} has more than {MAX_LINE_BYTES} bytes, which is the maximum")
            self._position = end
            yield number, _decode(number, data[start:end])


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


def _json_rows(lines: Iterator[tuple[int, str]]) -> Iterator[None]:
    for number, line in lines:
        if not line.isspace():
            _check_json(number, line)
            yield


def _check_json(number: int, line: str) -> None:
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


def _delimited_rows(lines: Iterator[tuple[int, str]], delimiters: str) -> Iterator[None]:
    first = next(((number, line) for number, line in lines if not line.isspace()), None)
    if first is None:
        return
    number, header = first
    delimiter = max(delimiters, key=header.count)
    columns = _read_header(number, header, delimiter)
    reader = csv.reader(_texts(lines), delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if len(cells) not in (0, columns):
                line = number + reader.line_num
                raise InvalidInput(f"line {line} has {len(cells)} cells; the first line names {columns} columns")
            if cells:
                yield
    except csv.Error as error:
        raise InvalidInput(f"line {number + reader.line_num} is not CSV: {error}") from None


def _texts(lines: Iterable[tuple[int, str]]) -> Iterator[str]:
    return (line for _, line in lines)


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
