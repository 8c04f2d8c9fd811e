"""Ends a text at its first stop sequence."""

from collections.abc import Sequence


class StopSequences:
    """Takes pieces of a text and returns the text before the first of `stops`, as soon as it is certain.

    It holds back the end of the text while that end may be the beginning of a stop.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.found = False

    def push(self, piece: str) -> str:
        """Adds a piece and returns the text that has become certain. Do not call it after a stop is `found`."""
        text = self._held + piece
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self._held, self.found = "", True
            return text[: min(places)]
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        """The text that was held back, for a text that has ended without a stop."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` are the beginning of `stop`."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
