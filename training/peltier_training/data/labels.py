"""From the label column to training targets, by task type. Ambiguous cells of several labels are refused.
torch is imported only to make targets."""

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from peltier_adapters.spec.tasks import EMBEDDING_TYPES, MAX_LABELS, SPAN_LABELS, TaskType
from peltier_adapters.spec.text_rules import label_problem
from peltier_client.quality.label_names import json_spelling

from peltier_training.data.examples import Example, are_scored, number_texts, scale_scores
from peltier_training.data.gold import tag_names
from peltier_training.data.label_names import distinct_names, label_name
from peltier_training.errors import TrainingError, shown

if TYPE_CHECKING:
    from torch import Tensor

_MAX_FLOAT32 = (2 - 2**-23) * 2.0**127
# The labels of types whose labels are not in the data.
_UNNAMED: dict[TaskType, tuple[str, ...]] = {
    "regression": ("value",),
    "text2text": (),
    "ranking": ("score",),
    "span": SPAN_LABELS,
    **dict.fromkeys(EMBEDDING_TYPES, ()),
}
_NUMBERED: frozenset[TaskType] = EMBEDDING_TYPES | {"regression", "ranking"}
_COMMON_SEPARATORS = "|;,"  # a text with one of them may be one label or several


@dataclass(frozen=True)
class Labels:
    """Label names in the order of the logits; texts and embeddings have none."""

    type: TaskType
    names: tuple[str, ...]

    def targets(self, examples: Sequence[Example]) -> "Tensor":
        """int64 [rows] for classification, float32 [rows, labels] for multilabel, float32 [rows] for regression. For
        ranking float32 [rows, 2]: the relevance of each document, and the number of its query among `examples`. For
        embeddings the scores of pairs, float32 [pairs], or int64 [pairs, 2]: the numbers of the texts of pairs that
        belong together."""
        import torch

        if self.type == "regression":
            return torch.tensor(self.numbers(examples))
        if self.type == "ranking":
            return torch.tensor([*zip(self.numbers(examples), number_queries(examples), strict=True)])
        if self.type in EMBEDDING_TYPES:
            scored = are_scored(examples)
            return torch.tensor(scale_scores(self.numbers(examples)) if scored else number_texts(examples))
        if self.type == "classification":
            return torch.tensor([self._index(_name(example.label, example), example) for example in examples])
        targets = torch.zeros(len(examples), len(self.names))
        for row, example in enumerate(examples):
            for name in _several(example):
                targets[row, self._index(name, example)] = 1.0
        return targets

    def numbers(self, examples: Sequence[Example]) -> list[float]:
        """The labels of a regression, the scores of pairs, or the relevance of a ranking's documents."""
        return [_relevance(example) if self.type == "ranking" else _number(example, self.type) for example in examples]

    def texts(self, examples: Sequence[Example]) -> list[str]:
        return [_name(example.label, example) for example in examples]

    def check(self, example: Example) -> None:
        """Raise a `TrainingError` for a label that is not one of the task's. Without names, any number is, and any text
        that an artifact may have as a label."""
        if self.type in _NUMBERED:
            self.numbers([example])
            return
        for label in _names_in(self.type, example):
            if self.names and self.type != "token-classification":  # entities were read with the names
                self._index(label, example)
            elif self.type != "text2text" and (problem := label_problem(label)) is not None:
                raise TrainingError(f"{example.where}: label {shown(label)} {problem}")

    def read(self, example: Example, *, positions: bool = False) -> Example:
        """The example with the names of its labels in the task's spelling, or with its number. With `positions` an
        integer stands for the name at its place, unless label names are integers. Raises a `TrainingError`."""
        if self.type in _NUMBERED:  # pairs of an embedding may have no scores
            return example if example.label is None else replace(example, label=self.numbers([example])[0])
        positions = positions and not any(_is_integer(json_spelling(name)) for name in self.names)
        match self.type:
            case "multilabel":
                names = (self._spell(label, positions) for label in _several(example))
                return replace(example, label=tuple(dict.fromkeys(names)))
            case "classification" | "text2text":
                return replace(example, label=self._spell(_name(example.label, example), positions))
        return example

    def _spell(self, label: str, positions: bool) -> str:
        if label in self._positions:
            return label
        spelling = json_spelling(label)
        if positions and _is_integer(spelling) and int(spelling) < len(self.names):
            return self.names[int(spelling)]
        return self._spellings.get(spelling, label)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def _spellings(self) -> dict[str, str]:
        return {json_spelling(name): name for name in self.names}

    def _index(self, label: str, example: Example) -> int:
        if (known := self._spell(label, positions=False)) in self._positions:
            return self._positions[known]
        names = ", ".join(self.names[:10]) + (", …" if len(self.names) > 10 else "")
        raise TrainingError(
            f"{example.where}: label {shown(label)} is not one of the task's {len(self.names)} labels: {names}"
        )


def find_labels(
    kind: TaskType, examples: Sequence[Example], names: Sequence[str] | None, *, of_table: bool = False
) -> Labels:
    """The task's labels: `names` if given, else the distinct values of the training examples, which may be those
    `of_table` cells, without types."""
    if kind in _UNNAMED:
        if names:
            raise TrainingError(f"{kind} has no label names")
        return Labels(kind, _UNNAMED[kind])
    if kind == "token-classification":
        names = tag_names(examples, names)
    if names is None:
        found = (name for example in examples for name in _names_in(kind, example))
        names = sorted(distinct_names(found, of_table=of_table), key=_order)
    if len(set(map(json_spelling, names))) != len(names) or not all(name.strip() for name in names):
        raise TrainingError(f"the label names {', '.join(names)} must be distinct and not empty")
    least = 2 if kind == "classification" else 1
    if len(names) < least:
        raise TrainingError(f"{kind} needs at least {least} labels; there are {len(names)}: {', '.join(names)}")
    if len(names) > MAX_LABELS:
        raise TrainingError(f"there are {len(names):,} labels; a task has at most {MAX_LABELS:,}")
    for name in names:
        if (problem := label_problem(name)) is not None:
            raise TrainingError(f"the label name {shown(name)} {problem}")
    return Labels(kind, tuple(names))


def number_queries(examples: Sequence[Example]) -> list[int]:
    """The number of the query of each example of a ranking, which is the first text of its input."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(example.input[0], len(numbers)) for example in examples]


def _names_in(kind: TaskType, example: Example) -> Collection[str]:
    """The names in a row's label; of an entity that of its first tag, the longest of them."""
    match kind:
        case "span":
            return ()
        case "token-classification":
            return [f"B-{entity.label}" for entity in example.label.entities]
        case "multilabel":
            return _several(example)
    return [_name(example.label, example)]


def _name(label: object, example: Example) -> str:
    try:
        return label_name(label)
    except TrainingError as error:
        hint = "; lists are for the task type multilabel" if isinstance(label, list) else ""
        raise TrainingError(f"{example.where}: {error}{hint}") from None


def _several(example: Example) -> tuple[str, ...]:
    try:
        return read_label_cell(example.label)
    except TrainingError as error:
        raise TrainingError(f"{example.where}: {error}") from None


def _order(name: str) -> tuple[bool, int, str]:
    """Integers first, as numbers."""
    number = json_spelling(name)
    return (not _is_integer(number), int(number) if _is_integer(number) else 0, name)


def _is_integer(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 10


def _number(example: Example, kind: TaskType) -> float:
    try:
        value = float(example.label)
    except (TypeError, ValueError, OverflowError):  # an integer may be too large for a float
        value = math.nan
    if not abs(value) <= _MAX_FLOAT32:
        raise TrainingError(f"{example.where}: label {shown(example.label)} is not a finite number, which {kind} needs")
    return value


def _relevance(example: Example) -> float:
    value = _number(example, "ranking")
    if value < 0:
        raise TrainingError(f"{example.where}: label {shown(example.label)} is negative; a document's relevance is not")
    return value


def check_separator(separator: str | None) -> None:
    """Raise a `TrainingError` for a separator that may occur in labels or JSON lists."""
    if separator is not None and (not separator or any(mark.isalnum() or mark in "[]\"'" for mark in separator)):
        raise TrainingError(
            f"label separator {separator!r} is invalid; use characters such as '|' or ';', not letters, digits, quotes "
            "or brackets"
        )


def read_label_cell(cell: Any, separator: str | None = None, known: Collection[str] = ()) -> tuple[str, ...]:
    """The distinct labels of a list, of a JSON list in a text, or of a text that is split at `separator`.

    An empty text has no label. Without a `separator`, a text that has a common one, such as a
    comma, is refused unless it is a `known` label.
    """
    return tuple(dict.fromkeys(_read_cell(cell, separator, known)))


def _read_cell(cell: Any, separator: str | None, known: Collection[str]) -> tuple[str, ...]:
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
