"""Calls of obstore in threads, and never its coroutines. The threads of these are of Rust, use Python also after they
have delivered a result, and abort an interpreter that ends meanwhile."""

import asyncio
import atexit
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

_END_SECONDS = 1.0
_running: set[Thread] = set()


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """The result of `work` in a thread of its own. Neither a caller that is cancelled nor the end of the interpreter
    waits for a store that is silent."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def end(setter: Callable[[Any], None], value: object) -> None:
        if not result.done():
            setter(value)

    def deliver(setter: Callable[[Any], None], value: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(end, setter, value)

    def run() -> None:
        try:
            value = work()
        except BaseException as error:
            deliver(result.set_exception, error)
        else:
            deliver(result.set_result, value)
        finally:
            _running.discard(thread)

    thread = Thread(target=run, name="obstore", daemon=True)
    _running.add(thread)
    thread.start()
    return await result


@atexit.register
def _wait() -> None:
    """Waits for calls that end soon, because a thread that returns from Rust while the interpreter ends aborts it."""
    until = time.monotonic() + _END_SECONDS
    for thread in [*_running]:
        thread.join(max(0.0, until - time.monotonic()))
