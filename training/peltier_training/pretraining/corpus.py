"""Plain text files as a stream of documents."""

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TextIO

from peltier_training.errors import TrainingError

_OPENERS: dict[str, Callable[..., TextIO]] = {
    ".txt": open,
    ".txt.gz": gzip.open,
    ".txt.xz": lzma.open,
}
_UNREADABLE = (OSError, EOFError, UnicodeDecodeError, lzma.LZMAError, zlib.error)

HELD_OUT_EVERY = 200  # documents; half a percent is held out, spread over all files


def check_files(files: Sequence[Path]) -> None:
    """Raise a `TrainingError` for a missing file, or one whose name is not that of a text file."""
    for path in files:
        if _opener(path) is None:
            raise TrainingError(f"{path} is not a text file; its name must end in {', '.join(_OPENERS)}")
        if not path.is_file():
            raise TrainingError(f"{path} does not exist or is not a file")


def documents(files: Sequence[Path]) -> Iterator[str]:
    """The non-empty documents of UTF-8 `files` (.txt, .txt.gz, .txt.xz) in order, separated by blank lines.

    Raises a `TrainingError` for a file that cannot be read."""
    for path in files:
        try:
            yield from _documents(path)
        except _UNREADABLE as error:
            raise TrainingError(f"{path} cannot be read: {_reason(error)}") from None


def is_held_out(number: int) -> bool:
    """Whether the document with this number, from 0, is only for evaluation."""
    return number % HELD_OUT_EVERY == 0


def _documents(path: Path) -> Iterator[str]:
    opener = _opener(path)
    assert opener is not None  # checked before the run began
    with opener(path, "rt", encoding="utf-8") as lines:
        for is_text, document in groupby(lines, key=lambda line: bool(line.strip())):
            if is_text:
                yield "".join(document).strip()


def _opener(path: Path) -> Callable[..., TextIO] | None:
    return next((opener for ending, opener in _OPENERS.items() if path.name.endswith(ending)), None)


def _reason(error: Exception) -> str:
    match error:
        case UnicodeDecodeError():
            return "it is not UTF-8"
        case OSError(strerror=str(reason)):
            return reason
        case _:
            return str(error)
