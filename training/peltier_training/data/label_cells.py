"""The labels in one cell of a multi-label file. Ambiguous cells are refused."""

import json
import math
from collections.abc import Collection
from typing import Any

from peltier_training.errors import TrainingError, shown

_COMMON_SEPARATORS = "|;,"  # a text with one of them may be one label or several


def check_separator(separator: str | None) -> None:
    """Raise a `TrainingError` for a separator that may occur in labels or JSON lists."""
    if separator is not None and (not separator or any(mark.isalnum() or mark in "[]\"'" for mark in separator)):
        raise TrainingError(
            f"label separator {separator!r} is invalid; use characters such as '|' or ';', not letters, digits, quotes "
            "or brackets"
        )


def label_name(label: Any) -> str:
    """The name of one label. Raises a `TrainingError` for anything but a text or a number."""
    missing = isinstance(label, float) and not math.isfinite(label)  # Python writes NaN to JSON for a missing cell
    if missing or not isinstance(label, str | int | float) or not str(label).strip():
        raise TrainingError(f"label {shown(label)} is not a label; it must be a text or a number")
    return str(label)


def read_label_cell(cell: Any, separator: str | None = None, known: Collection[str] = ()) -> tuple[str, ...]:
    """The labels of a list, of a JSON list in a text, or of a text that is split at `separator`.

    An empty text has no label. Without a `separator`, a text that has a common one, such as a
    comma, is refused unless it is a `known` label.
    """
    if isinstance(cell, list | tuple):
        return tuple(label_name(label) for label in cell)
    if not isinstance(cell, str):
        return (label_name(cell),)
    if not cell.strip():
        return ()
    listed = _json_list(cell)
    if separator is not None:
        return _split(cell, separator, listed)
    if listed is not None:
        return tuple(label_name(label) for label in listed)
    _refuse_two_readings(cell, known)
    return (cell.strip(),)


def _json_list(cell: str) -> list[Any] | None:
    try:
        found = json.loads(cell) if cell.lstrip().startswith("[") else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


def _split(cell: str, separator: str, listed: list[Any] | None) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in cell.split(separator))
    if listed is not None:
        raise TrainingError(
            f"label {shown(cell)} may be the JSON list of {_count(listed)}, or {_count(parts)} separated by "
            f"{separator!r}; write all rows in one of these ways, and leave the label separator empty for JSON lists"
        )
    if not all(parts):
        raise TrainingError(f"label {shown(cell)} has an empty label at a separator {separator!r}")
    return parts


def _refuse_two_readings(cell: str, known: Collection[str]) -> None:
    if cell.strip() in known:
        return
    if cell.lstrip().startswith("["):
        raise TrainingError(
            f"label {shown(cell)} may be one label, or a list that is not JSON; JSON lists have texts in double quotes"
        )
    used = [separator for separator in _COMMON_SEPARATORS if separator in cell]
    if used:
        parts = [part.strip() for part in cell.split(used[0])]
        raise TrainingError(
            f"label {shown(cell)} may be one label, or {_count(parts)} separated by {used[0]!r}; write a JSON list, "
            f"{json.dumps([cell.strip()], ensure_ascii=False)} for one, or give --label-separator {used[0]!r}"
        )


def _count(labels: Collection[Any]) -> str:
    names = ", ".join(map(shown, labels))
    return f"{len(labels)} labels {names}" if len(labels) != 1 else f"1 label {names}"
