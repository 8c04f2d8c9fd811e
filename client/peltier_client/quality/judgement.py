"""Judges the answers of one version by the labels of their rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from peltier_client.errors import InvalidInput
from peltier_client.protocol.comparison import JudgedType
from peltier_client.quality.gold import (
    read_answers,
    read_entities,
    read_label,
    read_labels,
    read_number,
    show_entities,
)
from peltier_client.quality.metrics import (
    Classes,
    MetricValues,
    choose_several,
    classify,
    match_answers,
    match_texts,
    rank_documents,
    regress,
    score_entities,
)


@dataclass(frozen=True)
class AnsweredSide:
    """The answers of one version. `names` are the labels of its task in order; empty without labels.

    An answer is a label or None (classification), a set of labels (multilabel), a number (regression, ranking), a text
    (text2text, span), or a set of entities (token classification).
    """

    task: str
    names: Sequence[str]
    answers: Sequence[Any]


@dataclass(frozen=True)
class Judged:
    """Judged answers: their metrics, the right answers and the given ones as they are shown, and the error of each
    row."""

    metrics: MetricValues
    classes: Classes
    gold: list[Any]
    shown: list[Any]
    errors: list[float]


class LabelReader:
    """Reads the labels of rows that two versions answered, whose label names are `names`."""

    def __init__(
        self,
        kind: JudgedType,
        tasks: tuple[str, str],
        names: tuple[Sequence[str], Sequence[str]],
        separator: str | None,
    ) -> None:
        self._kind = kind
        self._tasks = tasks
        self._names = names
        self._separator = separator
        self._known = {*names[0], *names[1]}

    def read(self, cell: Any) -> Any:
        """The right answer in the form of an answer (a list of texts for a span). Raises `InvalidInput` if the cell
        cannot be read, if neither version has the label, or if it means another label for each version.
        """
        first, second = (self._read(cell, names) for names in self._names)
        if first != second:
            # An integer stands for the name at that position, and the versions may differ in their order.
            raise InvalidInput(
                f"label {cell!r} is {_shown(first)!r} for {self._tasks[0]} and {_shown(second)!r} for "
                f"{self._tasks[1]}; write names instead of integers"
            )
        return first

    def _read(self, cell: Any, names: Sequence[str]) -> Any:
        match self._kind:
            case "classification":
                return self._check(read_label(cell, names))
            case "multilabel":
                return frozenset(map(self._check, read_labels(cell, names, self._separator)))
            case "regression" | "ranking":
                return read_number(cell)
            case "token-classification":
                return read_entities(cell)
            case "span":
                return read_answers(cell)
            case "text2text":
                return read_label(cell, ()).strip()

    def _check(self, label: str) -> str:
        if self._known and label not in self._known:
            raise InvalidInput(f"label {label!r} is not one of the {len(self._known)} labels of either version")
        return label


def judge(kind: JudgedType, texts: Sequence[str], gold: Sequence[Any], side: AnsweredSide) -> Judged:
    """Judges answers by the right ones. `texts` has the first text of each row."""
    found = side.answers
    match kind:
        case "classification":
            return Judged(*classify(gold, found, side.names), list(gold), list(found), _wrong(gold, found))
        case "multilabel":
            metrics, classes = choose_several(gold, found, side.names)
            return Judged(metrics, classes, list(map(sorted, gold)), list(map(sorted, found)), _wrong(gold, found))
        case "regression":
            errors = [abs(a - b) for a, b in zip(gold, found, strict=True)]
            return Judged(regress(gold, found), {}, list(gold), list(found), errors)
        case "ranking":
            # The means over queries with a relevant document. The first row of a query has the error of all its rows.
            metrics, ranks = rank_documents(texts, gold, found)
            return Judged(metrics, {}, list(gold), list(found), [1 - ranks.get(row, 1.0) for row in range(len(gold))])
        case "token-classification":
            # A row is right if all its entities are.
            wanted, answered = (
                [show_entities(*pair) for pair in zip(texts, rows, strict=True)] for rows in (gold, found)
            )
            return Judged(*score_entities(gold, found), wanted, answered, _wrong(gold, found))
        case "span":
            metrics, exact = match_answers(gold, found)
            shown = [text or "no answer" for text in found]
            return Judged(metrics, {}, list(gold), shown, [1 - own for own in exact])
        case "text2text":
            written = [text.strip() for text in found]
            return Judged(match_texts(gold, written), {}, list(gold), written, _wrong(gold, written))


def _shown(label: Any) -> Any:
    return sorted(label) if isinstance(label, frozenset) else label


def _wrong(gold: Sequence[Any], found: Sequence[Any]) -> list[float]:
    return [float(own != other) for own, other in zip(gold, found, strict=True)]
