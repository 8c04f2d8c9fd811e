"""A file of JSON lines that is written as NAME.part and renamed to NAME when it is complete."""

import gzip
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from peltier_client.errors import InvalidInput


@dataclass
class Written:
    """Counts of a part file's lines. `last_line` and `last_row` are the last row of the input that it covers, and
    `adapter` is the name in the last line with a prediction."""

    num_rows: int = 0
    num_errors: int = 0
    last_line: int = 0
    last_row: dict[str, Any] = field(default_factory=dict)
    adapter: str | None = None

    def add(self, document: dict[str, Any]) -> None:
        """Count one more line. Raises KeyError or TypeError, and counts nothing, if it is not a line of predictions."""
        line, row, adapter = document["line"], document["row"], document.get("adapter")
        if not isinstance(line, int) or not isinstance(row, dict) or not isinstance(adapter, str | None):
            raise TypeError("a line of predictions has a line number, a row and the name of an adapter")
        self.num_rows += 1
        self.num_errors += "error" in document
        self.last_line, self.last_row = line, row
        self.adapter = adapter or self.adapter


class PartFile:
    """`finish` renames it to `output`, compressed if that ends in .gz. An interrupted run can be resumed.

    Without `resume` an existing part file is refused, so that hours of work are not overwritten.
    """

    def __init__(self, output: Path, *, resume: bool) -> None:
        self._output = output
        self.path = output.with_name(f"{output.name}.part")
        self.written = Written()
        if self.path.exists():
            if not resume:
                raise InvalidInput(f"{self.path} exists from an unfinished run; give --resume, or delete it")
            self._read()
        self._file = self.path.open("ab")

    def write(self, documents: list[dict[str, Any]]) -> None:
        """Append lines; the operating system has them when this returns."""
        # Escaped, because a JSON text may hold a lone surrogate, which UTF-8 cannot encode.
        lines = [json.dumps(document, separators=(",", ":")).encode() + b"\n" for document in documents]
        with _refused_disk(self.path):
            self._file.writelines(lines)
            self._file.flush()
        for document in documents:
            self.written.add(document)

    def finish(self) -> None:
        """Rename the part file to `output` in one step."""
        with _refused_disk(self._output):
            self._finish()

    def _finish(self) -> None:
        os.fsync(self._file.fileno())
        self._file.close()
        if self._output.suffix != ".gz":
            self.path.replace(self._output)
            return
        packed = self.path.with_name(f"{self._output.name}.packed")
        try:
            with self.path.open("rb") as lines, gzip.open(packed, "wb") as file:
                shutil.copyfileobj(lines, file)
            packed.replace(self._output)
        except BaseException:
            packed.unlink(missing_ok=True)
            raise
        self.path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Closing retries lines that did not fit on the disk; that error has been raised before.
        with suppress(OSError):
            self._file.close()
        if not self.written.num_rows:
            self.path.unlink(missing_ok=True)

    def _read(self) -> None:
        """Count the complete lines, and cut off an incomplete last one."""
        with self.path.open("r+b") as file:
            end = 0
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._count(line)
                end += len(line)
            file.truncate(end)

    def _count(self, line: bytes) -> None:
        try:
            self.written.add(json.loads(line))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            place = f"{self.path}:{self.written.num_rows + 1}"
            raise InvalidInput(f"{place} is not a line of predictions; delete the file to start again") from error


@contextmanager
def _refused_disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from error
