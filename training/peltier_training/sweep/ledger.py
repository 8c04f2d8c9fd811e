"""The results of a sweep: one line per trial, appended atomically when it ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from peltier_training.errors import TrainingError
from peltier_training.sweep.trial import TrialResult


class Ledger:
    """The last result of each trial by its key. A lock admits one sweep at a time."""

    def __init__(self, path: Path, file: int) -> None:
        self._file = file
        self.results: dict[str, TrialResult] = {}
        for number, line in enumerate(_whole_lines(file), 1):
            result = _parse(path, number, line)
            self.results[result.key] = result

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator["Ledger"]:
        """The ledger at `path`, created if missing. Raises a `TrainingError` while another sweep has it open."""
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TrainingError(
                    f"another sweep is writing to {path}; only one sweep at a time can use a folder"
                ) from None
            yield cls(path, file)
        finally:
            os.close(file)

    def append(self, result: TrialResult) -> None:
        """Append a result; it is durable when this returns."""
        os.write(self._file, result.model_dump_json().encode() + b"\n")
        os.fsync(self._file)
        self.results[result.key] = result


def _whole_lines(file: int) -> list[bytes]:
    """The complete lines; an incomplete last line is removed from the file."""
    with os.fdopen(os.dup(file), "rb") as reader:
        reader.seek(0)
        data = reader.read()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.ftruncate(file, len(whole))
    return whole.splitlines()


def _parse(path: Path, number: int, line: bytes) -> TrialResult:
    try:
        return TrialResult.model_validate_json(line)
    except ValidationError:
        raise TrainingError(f"{path}:{number} is not a result of a sweep; choose another folder") from None
