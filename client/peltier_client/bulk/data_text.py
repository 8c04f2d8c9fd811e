"""The text of a data file, decompressed and decoded by its byte order mark or as UTF-8."""

import codecs
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO

from peltier_client.errors import InvalidInput

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
