"""Refuses labels that no artifact may have, before a training waits for a worker. The worker checks those in files."""

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from peltier_adapters.errors import first_of
from peltier_adapters.spec.label import label_problem
from peltier_client.errors import InvalidInput
from peltier_client.protocol.trainings import TrainingRequest

# The types of tasks whose labels are names. Without a type a task is a classification.
_NAMED = (None, "classification", "multilabel", "token-classification")
_LABEL_COLUMN = "label"
_NUM_SHOWN = 100


def check_labels(request: TrainingRequest) -> None:
    """Raises `InvalidInput` with the first hundred labels of the request that an artifact would refuse, and their
    rows."""
    if request.task_type in _NAMED and (found := list(islice(_problems(request), _NUM_SHOWN))):
        raise InvalidInput(first_of(found[0], len(found)), found)


def _problems(request: TrainingRequest) -> Iterator[str]:
    for number, label in enumerate(request.labels or ()):
        yield from _problem(f"labels.{number}", label)
    for name in ("examples", "validation"):
        rows: Sequence[Mapping[str, Any]] = getattr(request, name) or ()
        for number, row in enumerate(rows):
            for label in _labels_in(row.get(request.label_column or _LABEL_COLUMN), request.task_type):
                yield from _problem(f"row {number} of {name}", label)


def _problem(where: str, label: str) -> Iterator[str]:
    if (problem := label_problem(label)) is not None:
        yield f"{where}: label {reprlib.repr(label)} {problem}"


def _labels_in(cell: object, task_type: str | None) -> Iterator[str]:
    """The labels of a row: a text, a list of texts, or the entities of a list."""
    if isinstance(cell, str):
        # Only the worker knows how a text is divided into several labels.
        if task_type in (None, "classification") and cell.strip():
            yield cell
    elif isinstance(cell, list):
        for one in cell:
            label = one.get("label") if isinstance(one, dict) else one
            if isinstance(label, str) and label:
                yield label
