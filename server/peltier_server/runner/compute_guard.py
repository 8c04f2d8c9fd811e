"""One thread's time at the device."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class WorkerReplaced(BaseException):
    """Another thread has taken over, so this one leaves and touches nothing any more.

    It is no `Exception`, so that nothing which isolates failures takes it for the failure of a row.
    """


class ComputeGuard:
    """How long the present computation of a thread has taken, and whether another thread has relieved it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began_at: float | None = None
        self._relieved = False

    @contextmanager
    def computing(self) -> Iterator[None]:
        """A computation that may never end. Raises `WorkerReplaced`, whatever it has come to, if another thread has
        taken over meanwhile."""
        self._began_at = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._began_at = None
                relieved = self._relieved
            if relieved:
                raise WorkerReplaced

    def replace_worker(self, after_seconds: float) -> bool:
        """Ends the shift if its present computation has taken longer than this; whether it has."""
        with self._lock:
            began_at = self._began_at
            self._relieved = began_at is not None and time.monotonic() - began_at > after_seconds
            return self._relieved
