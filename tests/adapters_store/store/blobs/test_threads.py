"""Calls of obstore in threads that nobody has to wait for."""

import asyncio
import re
import threading
from contextlib import suppress
from pathlib import Path

from peltier_store.blobs import threads
from peltier_store.blobs.threads import in_daemon_thread

_ROOT = Path(__file__).parents[4]
_COROUTINE = re.compile(
    r"\.(put|get|get_range|get_ranges|head|delete|copy|rename|bytes|stream|list_with_delimiter)_async\("
)


def test_no_coroutine_of_obstore_is_awaited() -> None:
    """One that ends while the interpreter ends aborts it: 134 in place of the exit status."""
    product = [path for part in ("adapters_store", "server", "training") for path in (_ROOT / part).rglob("*.py")]
    text = {path: path.read_text() for path in product}
    assert [path for path in product if _COROUTINE.search(text[path]) or "async for page in" in text[path]] == []


async def test_a_caller_that_is_cancelled_waits_for_no_store() -> None:
    """Nor does the end of the interpreter; the result that comes later goes nowhere."""
    asked, answered, others = threading.Event(), threading.Event(), {*threads._running}

    def silent() -> None:
        asked.set()
        answered.wait()

    call = asyncio.ensure_future(in_daemon_thread(silent))
    await asyncio.to_thread(asked.wait)
    (thread,) = threads._running - others
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
    assert call.cancelled()
    assert thread.daemon
    assert thread.is_alive()
    answered.set()
    threads._wait()
    assert not thread.is_alive()
