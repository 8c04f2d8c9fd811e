"""The text of a data file, decompressed and decoded by its byte order mark or as UTF-8."""

import codecs
import gzip
import zlib
from pathlib import Path

from peltier_adapters.errors import nearest

from peltier_training.errors import TrainingError

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


def read_text(path: Path) -> str:
    """The text of `path`, decompressed if its name ends in .gz. Raises a `TrainingError` if it is not a text file."""
    data = _read(path)
    for start, what in _BINARY.items():
        if data.startswith(start):
            raise TrainingError(f"{path} {what}")
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decode_marked(path, data, encoding)
    return _decode_utf8(path, data)


def near_path(path: Path) -> str:
    """A clause with the most similar existing name, for the part of `path` that does not exist."""
    folder = path.parent
    while not folder.is_dir() and folder != folder.parent:
        path, folder = folder, folder.parent
    try:
        return nearest(path.name, [sibling.name for sibling in folder.iterdir()])
    except OSError:
        return ""


def _read(path: Path) -> bytes:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read()
    except FileNotFoundError:
        raise TrainingError(f"{path} does not exist{near_path(path)}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise TrainingError(f"{path} cannot be read: {error}") from None


def _decode_marked(path: Path, data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise TrainingError(f"{path} begins like {encoding.upper()} text but is not: {error.reason}") from None


def _decode_utf8(path: Path, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")  # spreadsheets write a byte order mark
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TrainingError(
            f"{path}:{line} is not UTF-8 text: {error.reason} 0x{data[error.start]:02x}; convert the file, from "
            "Latin-1 by iconv -f LATIN1 -t UTF-8"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise TrainingError(f"{path}:{line} has a NUL byte; a UTF-16 file must begin with a byte order mark")
    return text
