"""Entities of a labelled file, and the metrics of answers with entities."""

import json
from collections.abc import Sequence
from typing import Any

from peltier_client.bulk.quality import Classes, Metrics
from peltier_client.errors import InvalidInput

# Characters [start, end) and the label.
Span = tuple[int, int, str]
_FORM = '[{"start": 0, "end": 5, "label": "person"}]'


def read_entities(cell: Any) -> frozenset[Span]:
    """The entities in a cell: a list of objects, or the same as JSON in a text."""
    try:
        found = json.loads(cell) if isinstance(cell, str) else cell
        return frozenset(_read(one) for one in found)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InvalidInput(f"label {cell!r} has no entities; they must be a list such as {_FORM}") from None


def _read(one: Any) -> Span:
    span = one["start"], one["end"], one["label"]
    if not (type(span[0]) is type(span[1]) is int and isinstance(span[2], str)):
        raise TypeError
    return span


def score_entities(gold: Sequence[frozenset[Span]], found: Sequence[frozenset[Span]]) -> tuple[Metrics, Classes]:
    """F1, precision and recall of whole entities over all rows, and those of each label with its entities."""
    labels = sorted({label for spans in (*gold, *found) for *_, label in spans})
    classes = {label: _score(*(_of_label(rows, label) for rows in (gold, found))) for label in labels}
    return {name: value for name, value in _score(gold, found).items() if name != "support"}, classes


def _of_label(rows: Sequence[frozenset[Span]], label: str) -> list[frozenset[Span]]:
    return [frozenset(span for span in spans if span[2] == label) for spans in rows]


def _score(gold: Sequence[frozenset[Span]], found: Sequence[frozenset[Span]]) -> dict[str, float]:
    right = sum(len(own & other) for own, other in zip(gold, found, strict=True))
    wanted, given = sum(map(len, gold)), sum(map(len, found))
    return {
        "f1": 2 * right / (wanted + given) if wanted + given else 0.0,
        "precision": right / given if given else 0.0,
        "recall": right / wanted if wanted else 0.0,
        "support": float(wanted),
    }


def show_entities(text: str, spans: frozenset[Span]) -> list[str]:
    """Each entity as its label and its text, in order."""
    return [f"{label}: {text[start:end]}" for start, end, label in sorted(spans)]
