"""Where a worker keeps the rows of trainings while it has them. Nothing of a training stays after it."""

import fcntl
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

_PREFIX = "peltier-worker-"
_LOCK = "lock"


class Scratch:
    """A folder that only this user reads. It is removed when it is closed; if its process is killed, the next one that
    opens a scratch on the machine removes it, because a lock of the process ends with it."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = root or Path(tempfile.gettempdir())
        self._remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._root))
        self._lock = (self.path / _LOCK).open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()

    def create(self, name: str) -> Path:
        """A new folder."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.path))

    def _remove_abandoned(self) -> None:
        for folder in self._root.glob(f"{_PREFIX}*"):
            try:
                with (folder / _LOCK).open("r+") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            except OSError:  # it is in use, or another user's
                continue
