"""Texts at which an answer ends."""

from collections.abc import Sequence


class StopSequences:
    """Takes pieces of a text and gives what comes before the first of `stops`, as soon as it is certain.

    Held back is an end that may be the beginning of a stop.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.found = False

    def push(self, piece: str) -> str:
        """What is certain now and was not before; nothing more once a stop is `found`."""
        text = self._held + piece
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self._held, self.found = "", True
            return text[: min(places)]
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        """What was held back of a text that has ended by itself."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` are the beginning of `stop`."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
