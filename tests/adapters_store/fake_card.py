"""A fake GPU that records streams, events and their waits in their order; torch has none of them without a GPU."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch


class Stream:
    """Hands out the events that it records."""

    def __init__(self, card: "Card", name: str) -> None:
        self._card, self.name = card, name

    def wait_event(self, event: "Event") -> None:
        self._card.log.append(("wait", self.name, event.stream))

    def wait_stream(self, other: "Stream") -> None:
        self._card.log.append((f"{self.name} waits for", other.name))


class Event:
    """An event that is over at once, unless a test clears that."""

    def __init__(self, card: "Card") -> None:
        self._card, self.stream = card, ""
        self.over, self.waited = threading.Event(), threading.Event()
        self.over.set()

    def record(self, stream: Stream) -> None:
        self.stream = stream.name
        self._card.log.append(("record", stream.name))
        self._card.events.append(self)

    def synchronize(self) -> None:
        self.waited.set()
        assert self.over.wait(60)


class Card:
    """What the code under test asked of `torch.cuda`."""

    def __init__(self) -> None:
        self.log: list[tuple[object, ...]] = []
        self.events: list[Event] = []
        self._streams = {"compute": Stream(self, "compute")}
        self.current = "compute"

    def copy_stream(self, device: torch.device) -> Stream:
        return self._streams.setdefault("copy", Stream(self, "copy"))

    def current_stream(self) -> Stream:
        return self._streams[self.current]

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream.name
        try:
            yield
        finally:
            self.current = before


def install(monkeypatch: pytest.MonkeyPatch) -> Card:
    """Installs a fake GPU in torch."""
    card = Card()
    monkeypatch.setattr(torch.cuda, "Stream", card.copy_stream)
    monkeypatch.setattr(torch.cuda, "Event", lambda: Event(card))
    monkeypatch.setattr(torch.cuda, "stream", card.on)
    monkeypatch.setattr(torch.cuda, "current_stream", card.current_stream)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: card.log.append(("keep for", stream.name)))
    return card
