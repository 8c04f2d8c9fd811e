"""The events of trainings for streams that stay open."""

import asyncio

import pytest
from peltier_server.extensions.trainings import event_feed
from peltier_server.extensions.trainings.event_feed import EventFeed
from peltier_server.extensions.trainings.trainings import Trainings
from peltier_store.registry.errors import TrainingUnknown

from tests.server.conftest import Running

BODY = {"task": "demo", "examples": [{"text": "a gem", "label": "good"}]}


@pytest.fixture
async def training(running):
    """A training that waits."""
    return (await running.client.post("/v1/trainings", json=BODY)).json()["id"]


@pytest.fixture
async def feed(running: Running) -> EventFeed:
    """The feed of the server, whose registry changes through it alone."""
    return running.app.state.started[Trainings].event_feed


async def test_a_silent_training_gives_heartbeats(feed, training, monkeypatch):
    """After its events; the registry is not read again meanwhile."""
    monkeypatch.setattr(event_feed, "_TICKS_OF_SILENCE", 2)
    events = feed.events("default", training, 0, lambda: False)
    async with asyncio.timeout(60):
        first = await anext(events)
        assert first is not None
        assert first.data == {"state": "queued"}
        assert await anext(events) is None
        assert await anext(events) is None


async def test_streams_end_when_the_server_leaves(feed: EventFeed, training: str) -> None:
    """So that they do not hold up its drain."""
    leaving = False
    events = feed.events("default", training, 0, lambda: leaving)
    async with asyncio.timeout(60):
        await anext(events)
        leaving = True
        assert [one async for one in events] == []


async def test_an_unknown_training_has_no_events(feed: EventFeed) -> None:
    with pytest.raises(TrainingUnknown):
        await anext(feed.events("default", "trn_none", 0, lambda: False))


async def test_a_failed_training_that_is_resumed_goes_on(running: Running, feed: EventFeed, training: str) -> None:
    """A stream that sees both in one reading follows the training further."""
    trainings = running.service.store.registry.trainings
    await trainings.claim("w")
    await trainings.settle(training, "w", state="failed", reason="a reason")
    await trainings.resume("default", training, actor="test")
    events = feed.events("default", training, 0, lambda: False)
    async with asyncio.timeout(60):
        seen = [await anext(events) for _ in range(4)]
        assert [one and one.data["state"] for one in seen] == ["queued", "running", "failed", "queued"]
        await trainings.cancel("default", training, actor="test")
        assert [one and one.data["state"] async for one in events] == ["cancelled"]
