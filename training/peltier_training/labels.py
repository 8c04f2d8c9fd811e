"""From the label column to training targets, by task type."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from peltier_training.data import Example
from peltier_training.errors import TrainingError

TaskType = Literal["classification", "multilabel", "regression", "text2text"]
_SEPARATOR = ","


@dataclass(frozen=True)
class Labels:
    """Label names in the order of the logits, and the targets they give; a text2text task has no names."""

    type: TaskType
    names: tuple[str, ...]

    def targets(self, examples: Sequence[Example]) -> Tensor:
        """int64 [rows] for classification, float32 [rows, labels] for multilabel, float32 [rows] for regression."""
        if self.type == "regression":
            return torch.tensor(self.numbers(examples))
        index = {name: number for number, name in enumerate(self.names)}
        if self.type == "classification":
            return torch.tensor([self._index(index, _name(example.label, example), example) for example in examples])
        targets = torch.zeros(len(examples), len(self.names))
        for row, example in enumerate(examples):
            for name in _several(example):
                targets[row, self._index(index, name, example)] = 1.0
        return targets

    def numbers(self, examples: Sequence[Example]) -> list[float]:
        """The labels of a regression."""
        return [_number(example) for example in examples]

    def texts(self, examples: Sequence[Example]) -> list[str]:
        """The labels of a text2text task: what should be written."""
        return [_name(example.label, example) for example in examples]

    def _index(self, index: dict[str, int], label: str, example: Example) -> int:
        if label in index:
            return index[label]
        # An integer is a position in the names, unless integers are names.
        if _is_integer(label) and int(label) < len(self.names) and not any(map(_is_integer, self.names)):
            return int(label)
        shown = ", ".join(self.names[:10]) + (", …" if len(self.names) > 10 else "")
        raise TrainingError(
            f"{example.where}: label {label!r} is not one of the task's {len(self.names)} labels: {shown}"
        )


def find_labels(kind: TaskType, examples: Sequence[Example], names: Sequence[str] | None) -> Labels:
    """The task's labels: `names` where they were given, else the distinct values of the training examples."""
    if kind in ("regression", "text2text"):
        if names:
            raise TrainingError(f"{kind} has no label names")
        return Labels(kind, ("value",) if kind == "regression" else ())
    if names is None:
        found = {
            name
            for example in examples
            for name in (_several(example) if kind == "multilabel" else [_name(example.label, example)])
        }
        names = sorted(found, key=lambda name: (not _is_integer(name), int(name) if _is_integer(name) else 0, name))
    if len(set(names)) != len(names) or not all(name.strip() for name in names):
        raise TrainingError(f"the label names {', '.join(names)} must be distinct and not empty")
    least = 2 if kind == "classification" else 1
    if len(names) < least:
        raise TrainingError(f"{kind} needs at least {least} labels; there are {len(names)}: {', '.join(names)}")
    return Labels(kind, tuple(names))


def _name(label: Any, example: Example) -> str:
    if not isinstance(label, str | int | float) or not str(label).strip():
        raise TrainingError(f"{example.where}: label {label!r} is not a label; it must be a text or a number")
    return str(label)


def _several(example: Example) -> list[str]:
    if isinstance(example.label, list):
        return [_name(label, example) for label in example.label]
    if example.label == "":
        return []
    return [part.strip() for part in _name(example.label, example).split(_SEPARATOR) if part.strip()]


def _is_integer(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 10


def _number(example: Example) -> float:
    try:
        value = float(example.label)
    except (TypeError, ValueError):
        value = math.nan
    if not abs(value) <= torch.finfo(torch.float32).max:
        raise TrainingError(f"{example.where}: label {example.label!r} is not a finite number; regression needs them")
    return value
