"""The right answers of a question about a context: spans of its characters. Imports no torch."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from peltier_training.errors import TrainingError, shown

_FORMS = 'an object such as {"text": ["1976"], "answer_start": [97]}, with empty lists for no answer'


class GoldSpan(NamedTuple):
    """A right answer: its text, and its first character in the context."""

    start: int
    text: str


def read_gold_spans(cell: Any, context: str) -> tuple[GoldSpan, ...]:
    """The right answers in a cell; none for a question that the context does not answer.

    The cell is `{"text": [...], "answer_start": [...]}`, the list of `{"text": ..., "answer_start": ...}` that SQuAD's
    own file has, or either as JSON in a text. Raises a `TrainingError` for an answer that is not in the context there.
    """
    spans = tuple(_spans(_parsed(cell)))
    for span in spans:
        _check(span, context)
    return spans


def _parsed(cell: Any) -> Any:
    try:
        return json.loads(cell) if isinstance(cell, str) else cell
    except (ValueError, RecursionError):
        raise _unreadable(cell) from None


def _spans(cell: Any) -> Iterator[GoldSpan]:
    if isinstance(cell, dict):
        texts, starts = cell.get("text"), cell.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list):
            raise _unreadable(cell)
        if len(texts) != len(starts):
            raise TrainingError(f"answers {shown(cell)} have {len(texts)} texts and {len(starts)} starts")
        pairs = list(zip(texts, starts, strict=True))
    elif isinstance(cell, list) and all(isinstance(one, dict) for one in cell):
        pairs = [(one.get("text"), one.get("answer_start")) for one in cell]
    else:
        raise _unreadable(cell)
    for text, start in pairs:
        if not isinstance(text, str) or not text.strip() or isinstance(start, bool) or not isinstance(start, int):
            raise _unreadable(cell)
        yield GoldSpan(start, text)


def _unreadable(cell: Any) -> TrainingError:
    return TrainingError(f"answers {shown(cell)} cannot be read; they must be {_FORMS}")


def _check(span: GoldSpan, context: str) -> None:
    start, end = span.start, span.start + len(span.text)
    if start < 0 or end > len(context):
        raise TrainingError(
            f"answer {shown(span.text)} from character {start} to {end} is outside the context, which has "
            f"{len(context)} characters"
        )
    if context[start:end] != span.text:
        elsewhere = context.find(span.text)
        hint = "nowhere in it" if elsewhere < 0 else f"at character {elsewhere}"
        raise TrainingError(
            f"answer {shown(span.text)} is not at character {start} of the context, which has "
            f"{shown(context[start:end])} there; the answer is {hint}"
        )
