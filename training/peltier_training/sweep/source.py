"""The data of a task, read and checked once for all its trials."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from peltier_training.data.data import Data
from peltier_training.data.labelled_data import read_labelled, skipped_lines
from peltier_training.data.labels import Labels
from peltier_training.data.pairs import are_scored
from peltier_training.sweep.description import SweepTask


@dataclass(frozen=True)
class TaskData:
    """The files of a task with their labels, number of training rows and digests, and messages about skipped rows.
    `are_scored` says whether the validation rows have labels, which pairs of an embedding may lack."""

    data: Data
    labels: Labels
    num_rows: int
    digests: Mapping[str, str]
    skipped: Sequence[str]
    are_scored: bool

    @classmethod
    def read(cls, task: SweepTask, root: Path) -> "TaskData":
        """The data of a task with paths relative to `root`. Raises a `TrainingError` with the line of a mistake."""
        data = Data(
            root / task.train,
            root / task.validation,
            task.text_columns,
            task.label_column,
            task.labels,
            task.label_separator or None,
            task.skip_bad_rows,
        )
        data.check(task.task_type)
        found = read_labelled(data, task.task_type)
        labels = found.labels
        # A small draw may miss a label of the validation set.
        named = labels.names if task.task_type in ("classification", "multilabel") else None
        digests = {"train": digest(data.train), "validation": digest(data.validation)}
        drawn = replace(data, labels=named, labels_found=data.labels is None)
        skipped = skipped_lines({data.train: found.train, data.validation: found.validation})
        scored = task.task_type != "embedding" or are_scored(found.validation.examples)
        return cls(drawn, labels, len(found.train.examples), digests, skipped, scored)


def digest(*paths: Path) -> str:
    """The digest of the files' contents in order, independent of their names."""
    found = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()
