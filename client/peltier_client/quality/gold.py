"""Labels of a row, read with or without knowledge of the label names."""

import json
import math
from collections.abc import Sequence
from typing import Any

from peltier_client.errors import InvalidInput
from peltier_client.protocol.comparison import LARGEST_NUMBER
from peltier_client.quality.label_names import BOOLEANS, json_name, json_spelling
from peltier_client.quality.metrics import EntitySpan

# Much more than the words of an entity.
_SHOWN_CHARS = 400
_ENTITIES = '[{"start": 0, "end": 5, "label": "person"}]'


def read_label(cell: Any, names: Sequence[str]) -> str:
    """One label, in the spelling of `names` if one of them is equal. An integer stands for the label at that position,
    unless label names are integers."""
    if (label := json_name(cell)) is None:
        raise InvalidInput(f"label {cell!r} is not a label; it must be a text or a number")
    if label in names:
        return label
    spelling = json_spelling(label)
    if _is_integer(spelling) and int(spelling) < len(names) and not any(map(_is_integer, map(json_spelling, names))):
        return names[int(spelling)]
    others = (spelling, f"{spelling}.0", *((spelling.title(), spelling.upper()) if spelling in BOOLEANS else ()))
    return next((other for other in others if other in names), label)


def read_labels(cell: Any, names: Sequence[str], separator: str | None) -> frozenset[str]:
    """The labels of a list, of a JSON list in a text, of another text split at `separator`, or of one label."""
    if isinstance(cell, list):
        return frozenset(read_label(label, names) for label in cell)
    if not isinstance(cell, str):
        return frozenset({read_label(cell, names)})
    if not cell.strip():
        return frozenset()
    is_list = cell.lstrip().startswith("[")
    if separator and not (is_list and isinstance(_parsed(cell), list)):
        return frozenset(read_label(part.strip(), names) for part in cell.split(separator))
    if is_list:
        return read_labels(_json_list(cell), names, None)
    label = read_label(cell.strip(), names)
    if label not in names and any(mark in cell for mark in "|;,"):
        raise InvalidInput(f"label {cell!r} may be one label or several; write a JSON list, or give --label-separator")
    return frozenset({label})


def read_number(cell: Any) -> float:
    try:
        value = float(cell)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise InvalidInput(f"label {cell!r} is not a finite number, which this task needs")
    if abs(value) > LARGEST_NUMBER:
        raise InvalidInput(f"label {cell!r} is beyond {LARGEST_NUMBER:g}, the largest number that is compared")
    return value


def read_answers(cell: Any) -> list[str]:
    """The texts of the right answers to a question: `{"text": [...], "answer_start": [...]}`, a list of objects with a
    `text`, or either as JSON in a text."""
    read = _parsed(cell) if isinstance(cell, str) else cell
    texts = read.get("text") if isinstance(read, dict) else read
    if isinstance(read, list):
        texts = [one.get("text") if isinstance(one, dict) else None for one in read]
    if not isinstance(texts, list) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise InvalidInput(f'answers {cell!r} cannot be read; they must be such as {{"text": ["1976"], ...}}')
    return texts


def read_entities(cell: Any) -> frozenset[EntitySpan]:
    """The entities in a cell, by their characters: a list of objects, or the same as JSON in a text."""
    try:
        found = json.loads(cell) if isinstance(cell, str) else cell
        return frozenset(_read_entity(one) for one in found)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InvalidInput(f"label {cell!r} has no entities; they must be a list such as {_ENTITIES}") from None


def show_entities(text: str, spans: frozenset[EntitySpan]) -> list[str]:
    """Each entity as its label and its text, in order; a very long text is cut."""
    return [f"{label}: {text[start : min(end, start + _SHOWN_CHARS)]}" for start, end, label in sorted(spans)]


def _read_entity(one: Any) -> EntitySpan:
    start, end, label = one["start"], one["end"], json_name(one["label"])
    if not (type(start) is type(end) is int and label is not None):
        raise TypeError
    return start, end, label


def _json_list(cell: str) -> list[Any]:
    found = _parsed(cell)
    if not isinstance(found, list):
        raise InvalidInput(f"label {cell!r} begins like a list but is not JSON; JSON lists have texts in double quotes")
    return found


def _parsed(text: str) -> Any:
    """The value of a JSON text; None for another text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_integer(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 10
