"""From the label column to training targets, by task type."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from peltier_training.data import Example
from peltier_training.errors import TrainingError

TaskType = Literal["classification", "multilabel", "regression"]
_SEPARATOR = ","


@dataclass(frozen=True)
class Labels:
    """Label names in the order of the logits, and the targets they give."""

    type: TaskType
    names: tuple[str, ...]

    def targets(self, examples: Sequence[Example]) -> Tensor:
        """int64 [rows] for classification, float32 [rows, labels] for multilabel, float32 [rows] for regression."""
        if self.type == "regression":
            return torch.tensor([_number(example.label) for example in examples])
        index = {name: number for number, name in enumerate(self.names)}
        if self.type == "classification":
            return torch.tensor([self._index(index, example.label) for example in examples])
        targets = torch.zeros(len(examples), len(self.names))
        for row, example in enumerate(examples):
            for label in _several(example.label):
                targets[row, self._index(index, label)] = 1.0
        return targets

    def _index(self, index: dict[str, int], label: Any) -> int:
        # Integer labels are positions in the names, unless they are names themselves.
        if str(label) in index:
            return index[str(label)]
        position = _position(label)
        if position is not None and position < len(self.names):
            return position
        shown = ", ".join(self.names[:10]) + (", …" if len(self.names) > 10 else "")
        raise TrainingError(f"label {label!r} is not one of the task's {len(self.names)} labels: {shown}")


def find_labels(kind: TaskType, examples: Sequence[Example], names: Sequence[str] | None) -> Labels:
    """The task's labels: `names` where they were given, else the distinct values of the training examples."""
    if kind == "regression":
        if names:
            raise TrainingError("regression has no label names")
        return Labels(kind, ("value",))
    if names is None:
        found = {
            str(label)
            for example in examples
            for label in (_several(example.label) if kind == "multilabel" else [example.label])
        }
        names = sorted(found, key=lambda label: (_position(label) is None, _position(label) or 0, label))
    if len(set(names)) != len(names) or not all(name.strip() for name in names):
        raise TrainingError(f"the label names {', '.join(names)} must be distinct and not empty")
    if kind == "classification" and len(names) < 2:
        raise TrainingError(f"classification needs at least two labels; the data has {', '.join(names) or 'none'}")
    return Labels(kind, tuple(names))


def parse_names(text: str) -> list[str]:
    """Label names from `a,b,c` or from a JSON file that holds a list."""
    path = Path(text)
    if path.suffix != ".json":
        return [name.strip() for name in text.split(_SEPARATOR)]
    try:
        names = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise TrainingError(f"label file {path} cannot be read: {error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TrainingError(f"label file {path} must hold a JSON list of names")
    return names


def _several(label: Any) -> list[Any]:
    if isinstance(label, list):
        return label
    return [part.strip() for part in str(label).split(_SEPARATOR) if part.strip()]


def _position(label: Any) -> int | None:
    text = str(label)
    return int(text) if text.isascii() and text.isdigit() else None


def _number(label: Any) -> float:
    try:
        value = float(label)
    except (TypeError, ValueError):
        raise TrainingError(f"label {label!r} is not a number; regression needs numbers") from None
    if not math.isfinite(value):
        raise TrainingError(f"label {label!r} is not finite; regression needs finite numbers")
    return value
