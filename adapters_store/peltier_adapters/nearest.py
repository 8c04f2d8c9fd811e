"""Suggestions for mistyped names. Imports no torch."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """A clause for the message that refuses `name`; empty if no `known` name is similar."""
    found = get_close_matches(name, list(known), n=1)
    return f", the nearest is {found[0]!r}" if found else ""
