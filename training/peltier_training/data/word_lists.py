"""Texts that a file has as lists of words. Imports no torch."""

from dataclasses import dataclass
from typing import Any

from peltier_backbone.text.token_places import Span

from peltier_training.errors import TrainingError, shown


@dataclass(frozen=True)
class OfWords:
    """A label cell beside a list of words, and the characters of each word in the text."""

    words: tuple[Span, ...]
    cell: Any


def join_words(words: list[Any], column: str, where: str) -> tuple[str, tuple[Span, ...]]:
    """The words as one text, with spaces between them, and the characters of each. Raises a `TrainingError` for a word
    that is not a text."""
    spans, start = list[Span](), 0
    for number, word in enumerate(words):
        if not isinstance(word, str) or not word.strip():
            raise TrainingError(
                f"{where}: word {number} of column {column!r} is {shown(word)}; words are non-empty texts"
            )
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return " ".join(words), tuple(spans)
