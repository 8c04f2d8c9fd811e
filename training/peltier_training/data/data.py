"""The files and columns of a task's examples, and their rows with their labels, every row checked. Imports no torch."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from peltier_adapters.spec.tasks import EMBEDDING_TYPES, InputForm, TaskType
from peltier_adapters.spec.text_rules import surrogate_problem
from peltier_client.bulk.data_file import data_kind
from typer import Option

from peltier_training.data.examples import Example, LabelledRows, has_values, read_rows
from peltier_training.data.gold import GoldSpan, Tagged, read_gold_spans, read_tagged
from peltier_training.data.labels import Labels, check_separator, find_labels, read_label_cell
from peltier_training.errors import TrainingError, describe, refuse

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

    @property
    def is_table(self) -> bool:
        """Whether the training examples are cells, which have no types."""
        return data_kind(self.train) in (".csv", ".tsv")

    def check(self, task_type: TaskType) -> None:
        """Raise a `TrainingError` for an invalid value. Does not open the files."""
        if self.label_separator is not None and task_type != "multilabel":
            raise TrainingError(f"label_separator is for multilabel; the task type is {task_type}")
        check_separator(self.label_separator)
        for path in (self.train, self.validation):
            if surrogate_problem(path.name) is not None:  # an artifact has the name
                raise TrainingError(f"the name of {path} is not UTF-8 text; rename the file")
        if task_type in EMBEDDING_TYPES and len(self.text_columns) != 2:
            num = len(self.text_columns)
            raise TrainingError(f"{task_type} has two text columns, the texts of a pair; {num} were given")
        if task_type == "span" and len(self.text_columns) != 2:
            columns = ", ".join(self.text_columns)
            raise TrainingError(f"span needs two text columns, the question and its context; {columns} was given")


@dataclass(frozen=True)
class LabelReader:
    """Reads the labels of a file. `names` are the allowed labels in the order of the logits, None for any; with
    `positions`, integers stand for them. Labels of a multi-label task are split at `separator`, or are lists.
    `unlabelled` rows are not read further."""

    task_type: TaskType
    names: Sequence[str] | None = None
    separator: str | None = None
    positions: bool = False
    unlabelled: bool = False

    def read(self, example: Example) -> Example:
        """The example with the name of its label or its number, with a tuple of labels for a multi-label task, of right
        answers for a span, and `Tagged` for a token classification. Raises a `TrainingError` for an invalid label."""
        if self.unlabelled:
            return example
        try:
            example = replace(example, label=self._parsed(example))
        except TrainingError as error:
            raise TrainingError(f"{example.where}: {error}") from None
        example = self._labels.read(example, positions=self.positions)
        self._labels.check(example)
        return example

    def _parsed(self, example: Example) -> Any:
        match self.task_type:
            case "multilabel":
                return read_label_cell(example.label, self.separator, self.names or ())
            case "span":
                return read_gold_spans(example.label, example.input[-1])
            case "token-classification":
                return read_tagged(example.input, example.label, self.names, positions=self.positions)
        return example.label

    @cached_property
    def _labels(self) -> Labels:
        return Labels(self.task_type, tuple(self.names or ()))


@dataclass(frozen=True)
class LabelledData:
    """The rows of both files, and the labels."""

    train: LabelledRows
    validation: LabelledRows
    labels: Labels

    @property
    def sizes(self) -> dict[str, Any]:
        """The numbers of rows for the training record."""
        parts = {"train": self.train, "validation": self.validation}
        skipped = {name: len(rows.bad) for name, rows in parts.items()}
        rows = {f"{name}_rows": len(rows.examples) for name, rows in parts.items()}
        return {**rows, "skipped_rows": skipped} if any(skipped.values()) else rows


def read_labelled(data: Data, task_type: TaskType) -> LabelledData:
    """Read both files. Raises a `TrainingError` that names every bad row, unless bad rows are skipped."""
    if data.labels is not None:
        find_labels(task_type, (), data.labels)
    train = read_file(data, data.train, task_type, data.labels)
    if train.bad and not data.skip_bad_rows:  # the labels are not known yet
        bad = train.bad + read_file(data, data.validation, task_type, data.labels).bad
        refuse(list(dict.fromkeys(bad)))  # both may be one file
    labels = find_labels(task_type, train.examples, data.labels, of_table=data.is_table)
    train = replace(train, examples=tuple(map(labels.read, train.examples)))
    validation = read_file(data, data.validation, task_type, labels.names)
    if not data.skip_bad_rows:
        refuse(validation.bad)
    return LabelledData(train, validation, labels)


def read_file(data: Data, path: Path, task_type: TaskType, names: Sequence[str] | None) -> LabelledRows:
    """The rows of one file. Raises a `TrainingError` if bad rows are skipped and no row is left."""
    words, label_column = task_type == "token-classification", _label_column(data, path, task_type)
    positions, unlabelled = data.has_given_labels, label_column is None
    reader = LabelReader(task_type, names, data.label_separator, positions, unlabelled)
    rows = read_rows(path, data.text_columns, label_column, reader.read, words=words)
    if data.skip_bad_rows and not rows.examples:
        raise TrainingError(f"{path} has no valid row: {'; '.join(describe(rows.bad))}")
    return rows


def _label_column(data: Data, path: Path, task_type: TaskType) -> str | None:
    """The column of the labels; None for pairs of an embedding that belong together: no row has a value in the default
    column."""
    if task_type not in EMBEDDING_TYPES or data.label_column != LABEL_COLUMN:
        return data.label_column
    return data.label_column if has_values(path, data.text_columns, data.label_column) else None


def skipped_lines(parts: Mapping[Path, LabelledRows]) -> list[str]:
    """Messages about skipped rows; empty if there are none."""
    lines: list[str] = []
    for path, rows in parts.items():
        if rows.bad:
            total = len(rows.bad) + len(rows.examples)
            lines += [f"{path}: {len(rows.bad)} of {total} rows were skipped", *describe(rows.bad)]
    return lines


def write_examples(path: Path, examples: Sequence[Example], text_columns: Sequence[str], label_column: str) -> None:
    """Write JSONL for `read_examples`."""
    with path.open("w", encoding="utf-8") as file:
        for example in examples:
            texts, label = _cells(example)
            row = {**dict(zip(text_columns, texts, strict=True)), label_column: label}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _cells(example: Example) -> tuple[Sequence[Any], Any]:
    """The texts of an example and its label, in a form that is read again as the same."""
    value, label = example.input, example.label
    texts = (value,) if isinstance(value, str) else value
    if isinstance(label, Tagged) and label.words is not None:
        words = [texts[0][start:end] for start, end in label.words]
        return (words,), label.tags
    if isinstance(label, Tagged):
        return texts, [entity._asdict() for entity in label.entities]
    if isinstance(label, tuple) and label and all(isinstance(one, GoldSpan) for one in label):
        return texts, {"text": [span.text for span in label], "answer_start": [span.start for span in label]}
    return texts, label
