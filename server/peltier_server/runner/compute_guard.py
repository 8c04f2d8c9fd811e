"""Detects that the computation of a thread takes too long, and stops the thread after it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class WorkerReplaced(BaseException):
    """Another thread has replaced this one, which must end without touching anything.

    It is not an `Exception`, so that code that isolates failures does not treat it as the failure of a row.
    """


class ComputeGuard:
    """The duration of a thread's current computation, and whether another thread has replaced it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began_at: float | None = None
        self._replaced = False

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Wraps a computation that may hang. Raises `WorkerReplaced`, whatever its result, if the thread was replaced
        meanwhile."""
        self._began_at = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._began_at = None
                replaced = self._replaced
            if replaced:
                raise WorkerReplaced

    def replace_worker(self, after_seconds: float) -> bool:
        """Replaces the thread if its current computation has taken longer than this; returns whether it did."""
        with self._lock:
            began_at = self._began_at
            self._replaced = began_at is not None and time.monotonic() - began_at > after_seconds
            return self._replaced
