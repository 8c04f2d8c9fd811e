"""What a training's log says of its rows, and which texts it can hold. Imports no torch."""

from collections.abc import Mapping
from typing import Any


def describe(preflight: Mapping[str, Any]) -> str:
    """What a preflight found, as sentences."""
    rows = preflight["rows"]
    checked = f"{rows['train']} rows to train on and {rows['validation']} to validate on were checked."
    return " ".join((checked, *preflight["warnings"]))


def storable(text: str) -> str:
    """The text without the characters that a registry refuses."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
