"""The status of a training's process, whoever else waits for it."""

import signal
import threading
from collections.abc import Callable
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerProcess
from typing import Any

import pytest
from peltier_training.service import child
from peltier_training.service.messages import Died


class WatchedLock:
    """A lock that tells once a second thread asks for it."""

    def __init__(self) -> None:
        self._lock, self.contested = threading.Lock(), threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.contested.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _pausing() -> ForkServerProcess:
    return get_context("forkserver").Process(target=signal.pause)


@pytest.mark.parametrize("meanwhile", ["wait", "start"])
def test_a_kill_is_told_as_a_kill(meanwhile: str, monkeypatch: pytest.MonkeyPatch):
    """Also if another thread waits for the process, or starts one, between the reading of the status and its use."""
    process, other, lock = _pausing(), _pausing(), WatchedLock()
    child._start(process)
    read_signed, was_read = forkserver.read_signed, threading.Event()

    def read_and_wait(descriptor: int) -> Any:
        found = read_signed(descriptor)
        if not was_read.is_set():
            was_read.set()
            lock.contested.wait()
        return found

    monkeypatch.setattr(forkserver, "read_signed", read_and_wait)
    monkeypatch.setattr(child, "_status_lock", lock)
    found: list[int] = []
    acts: dict[str, Callable[[], None]] = {
        "wait": lambda: found.append(child._join(process)),
        "start": lambda: child._start(other),
    }
    first, second = (threading.Thread(target=acts[name]) for name in ("wait", meanwhile))
    first.start()
    process.kill()
    was_read.wait()
    second.start()
    first.join()
    second.join()
    if meanwhile == "start":
        child._end(other)
    assert {Died(status).how for status in found} == {"was killed by signal 9"}
