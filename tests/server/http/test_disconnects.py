"""Callers who disconnect before they are answered."""

import asyncio

import pytest
from peltier_server.http import disconnects
from peltier_server.http.disconnects import Watch, Watches
from starlette.requests import Request
from starlette.types import Message

from tests.server.conftest import until


async def hang_up() -> Message:
    return {"type": "http.disconnect"}


REQUEST = Request({"type": "http"}, hang_up)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disconnects, "_AFTER_SECONDS", 0.001)


async def test_a_request_that_takes_long_is_cancelled() -> None:
    watches, found = Watches(), list[Watch]()

    async def work() -> None:
        found.append(watches.add(REQUEST))
        await asyncio.Event().wait()

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert found[0].gone


async def test_a_watch_that_has_ended_never_begins() -> None:
    watches = Watches()
    ended = [watches.add(REQUEST) for _ in range(3)]
    for watch in ended:
        watches.end(watch)
    await until(lambda: watches._timer is None)
    assert not any(watch.watcher or watch.gone for watch in ended)
