"""The name that a mistyped one was probably meant to be. Imports no torch."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """A clause for a sentence that refuses `name`; empty where nothing `known` is like it."""
    found = get_close_matches(name, list(known), n=1)
    return f", the nearest is {found[0]!r}" if found else ""
