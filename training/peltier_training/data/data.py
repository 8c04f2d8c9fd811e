"""The files and columns of a task's examples."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from peltier_adapters.spec.tasks import InputForm, TaskType
from typer import Option

from peltier_training.data.label_cells import check_separator
from peltier_training.errors import TrainingError

LABEL_COLUMN = "label"
_INPUTS: Mapping[int, InputForm] = {1: "single", 2: "pair", 3: "triple"}  # by the number of text columns


@dataclass(frozen=True)
class Data:
    """The files and columns of a task's examples; two text columns are a pair, three a triple.

    `labels` are names that the user gave, or with `labels_found` the names in the training rows. Integers in the files
    stand for positions only in names that the user gave."""

    train: Annotated[
        Path, Option(help="Training examples, .jsonl, .csv, .tsv, SQuAD's .json or CoNLL's .conll (.gz too).")
    ]
    validation: Annotated[Path, Option(help="Validation examples.")]
    text_columns: Annotated[
        tuple[str, ...], Option("--text-column", help="A text column; twice for a pair, three times on a T5.")
    ] = ("text",)
    label_column: Annotated[str, Option(help="Column of the label.")] = LABEL_COLUMN
    labels: tuple[str, ...] | None = None
    label_separator: Annotated[
        str | None,
        Option(help="Separator of the labels in a multi-label cell, such as '|'; empty if cells are JSON lists."),
    ] = None
    skip_bad_rows: Annotated[bool, Option("--skip-bad-rows", help="Leave out invalid rows and report them.")] = False
    labels_found: bool = False

    @property
    def has_given_labels(self) -> bool:
        """Whether the user named the labels."""
        return self.labels is not None and not self.labels_found

    @property
    def inputs(self) -> InputForm:
        """The name of a task's inputs with this many texts."""
        return _INPUTS[len(self.text_columns)]

    def check(self, task_type: TaskType) -> None:
        """Raise a `TrainingError` for an invalid value. Does not open the files."""
        if self.label_separator is not None and task_type != "multilabel":
            raise TrainingError(f"label_separator is for multilabel; the task type is {task_type}")
        check_separator(self.label_separator)
        if task_type == "embedding" and len(self.text_columns) != 2:
            num = len(self.text_columns)
            raise TrainingError(f"embedding has two text columns, the texts of a pair; {num} were given")
        if task_type == "span" and len(self.text_columns) != 2:
            columns = ", ".join(self.text_columns)
            raise TrainingError(f"span needs two text columns, the question and its context; {columns} was given")
