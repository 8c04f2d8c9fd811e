"""Divides the rows of one file into training and validation. Imports no torch."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from peltier_adapters.spec.tasks import EMBEDDING_TYPES, TaskType

from peltier_training.data.data import Data, read_file
from peltier_training.data.examples import Example
from peltier_training.data.labels import find_labels
from peltier_training.data.writing import write_examples
from peltier_training.errors import TrainingError, refuse

_NAMED: tuple[TaskType, ...] = ("classification", "multilabel", "token-classification")
_TRAIN, _VALIDATION = Path("train-rows.jsonl"), Path("validation-rows.jsonl")


def split_file(data: Data, task_type: TaskType, share: float, seed: int, directory: Path = Path()) -> Data:
    """Write the rows of `data.train` to two files, `share` of them for validation; the same seed divides them alike.

    Labels are those of all rows. Raises a `TrainingError` that names every bad row, or if there is only one row.
    """
    if data.labels is not None:
        find_labels(task_type, (), data.labels)
    rows = read_file(data, data.train, task_type, data.labels)
    refuse(rows.bad)
    labels = find_labels(task_type, rows.examples, data.labels, of_table=data.is_table)
    train, validation = split([labels.read(example) for example in rows.examples], task_type, share, seed)
    if not train:
        raise TrainingError(
            f"{data.train} has one distinct input; a training needs at least two, one of them for validation"
        )
    for path, part in ((_TRAIN, train), (_VALIDATION, validation)):
        write_examples(directory / path, part, data.text_columns, data.label_column)
    divided = replace(data, train=_TRAIN, validation=_VALIDATION)
    if data.labels is not None or task_type not in _NAMED:
        return divided
    return replace(divided, labels=labels.names, labels_found=True)


def split(
    examples: Sequence[Example], task_type: TaskType, share: float, seed: int
) -> tuple[list[Example], list[Example]]:
    """Training and validation rows, in the order of the file.

    Rows of one input, or of one query, stay together, so that no input is in both. Each label of a classification has
    about its share of the validation rows, and its first row is in training."""
    groups = list(_groups(examples, task_type).values())
    if len(groups) < 2:
        return [], list(examples)
    random.Random(seed).shuffle(groups)
    groups.sort(key=lambda group: _stratum(group[0], task_type))  # a stable sort
    chosen = {id(example) for group in _spread(groups, task_type, share) for example in group}
    parts: tuple[list[Example], list[Example]] = ([], [])
    for example in examples:
        parts[id(example) in chosen].append(example)
    return parts


def _groups(examples: Sequence[Example], task_type: TaskType) -> dict[object, list[Example]]:
    found: dict[object, list[Example]] = defaultdict(list)
    by_first = task_type == "ranking" or (task_type in EMBEDDING_TYPES and examples[0].label is None)
    for example in examples:
        found[example.input[0] if by_first else example.input].append(example)
    return found


def _stratum(example: Example, task_type: TaskType) -> str:
    return str(example.label) if task_type == "classification" else ""


def _spread(groups: Sequence[list[Example]], task_type: TaskType, share: float) -> list[list[Example]]:
    """The groups for validation: evenly spaced among those that are not the first of their label."""
    firsts: dict[str, int] = {}
    for place, group in enumerate(groups):
        firsts.setdefault(_stratum(group[0], task_type), place)
    kept = set(firsts.values())
    others = [group for place, group in enumerate(groups) if place not in kept] or list(groups[1:])
    wanted = min(max(round(share * len(groups)), 1), len(others))
    return [others[number * len(others) // wanted] for number in range(wanted)]
