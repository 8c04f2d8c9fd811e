"""Work beside the requests: when a queue in the registry is asked again."""

import asyncio
import logging

import pytest
from peltier_adapters.errors import AdapterError
from peltier_server import background
from peltier_server.background import QueueTask


class Queue:
    """Counts the turns; each of the first `waiting` ones finds something."""

    def __init__(self, waiting: int = 0) -> None:
        self.num_turns = 0
        self.turn_begun = asyncio.Event()
        self._waiting = waiting

    async def take_turn(self) -> bool:
        self.num_turns += 1
        self.turn_begun.set()
        return self.num_turns <= self._waiting

    async def wait_for_turn(self) -> None:
        await self.turn_begun.wait()
        self.turn_begun.clear()


async def test_after_a_change_the_queue_is_asked_until_it_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_PAUSE_SECONDS", 0.0)
    queue = Queue(waiting=3)
    task = QueueTask(queue.take_turn, "the queue cannot be read", idle_seconds=3600.0)
    task.start()
    await queue.wait_for_turn()
    await asyncio.sleep(0)
    assert queue.num_turns == 4
    task.wake()
    await queue.wait_for_turn()
    assert queue.num_turns == 5
    await task.close()


async def test_many_changes_do_not_ask_an_empty_queue_again_within_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_PAUSE_SECONDS", 3600.0)
    queue = Queue()
    task = QueueTask(queue.take_turn, "the queue cannot be read", idle_seconds=3600.0)
    task.start()
    await queue.wait_for_turn()
    for _ in range(100):
        task.wake()
        await asyncio.sleep(0)
    assert queue.num_turns == 1
    await task.close()


async def test_a_change_during_the_pause_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_PAUSE_SECONDS", 0.01)
    queue = Queue()
    task = QueueTask(queue.take_turn, "the queue cannot be read", idle_seconds=3600.0)
    task.start()
    await queue.wait_for_turn()
    task.wake()
    await queue.wait_for_turn()
    await task.close()


async def test_a_failed_turn_is_logged_and_the_next_change_brings_another(monkeypatch, caplog):
    monkeypatch.setattr(background, "_PAUSE_SECONDS", 0.0)
    queue = Queue()

    async def fail_once() -> bool:
        await queue.take_turn()
        if queue.num_turns == 1:
            raise AdapterError("the disk is full")
        return False

    task = QueueTask(fail_once, "the queue cannot be read", idle_seconds=3600.0)
    with caplog.at_level(logging.WARNING):
        task.start()
        await queue.wait_for_turn()
        task.wake()
        await queue.wait_for_turn()
    assert caplog.messages == ["the queue cannot be read: the disk is full"]
    await task.close()
