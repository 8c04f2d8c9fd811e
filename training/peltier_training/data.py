"""Labelled examples from JSONL or CSV files, plain or gzipped."""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peltier_adapters.manifest import Input

from peltier_training.errors import TrainingError


@dataclass(frozen=True)
class Example:
    """One input, its label as the file has it, and `where` it stands (file:line)."""

    input: Input
    label: Any
    where: str


def read_examples(path: Path, text_columns: Sequence[str], label_column: str) -> list[Example]:
    """Read `path` (.jsonl or .csv, with .gz too); one text column is a single text, two are a pair, three a
    triple.

    A `TrainingError` names the file, the line and the rule that it breaks.
    """
    if len(text_columns) not in (1, 2, 3):
        raise TrainingError(f"{len(text_columns)} text columns were given; a task has one, two for a pair, or three")
    examples = [_example(row, f"{path}:{line}", text_columns, label_column) for line, row in _rows(path)]
    if not examples:
        raise TrainingError(f"{path} has no examples")
    return examples


def thin_out(examples: Sequence[Example], num_inputs: int | None) -> list[Example]:
    """The examples of at most `num_inputs` distinct inputs, evenly from the first to the last; None keeps all."""
    inputs = list(dict.fromkeys(example.input for example in examples))
    if num_inputs is None or num_inputs >= len(inputs):
        return list(examples)
    kept = {inputs[number * len(inputs) // num_inputs] for number in range(num_inputs)}
    return [example for example in examples if example.input in kept]


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    kind = Path(path.name.removesuffix(".gz")).suffix
    if kind not in (".jsonl", ".csv"):
        raise TrainingError(f"{path} is not a data file; its name must end in .jsonl or .csv, or these with .gz")
    lines = io.StringIO(_text(path), newline="")
    return _json_rows(path, lines) if kind == ".jsonl" else _csv_rows(path, lines)


def _text(path: Path) -> str:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise TrainingError(f"{path} does not exist") from None
    except (OSError, EOFError, zlib.error) as error:
        raise TrainingError(f"{path} cannot be read: {error}") from None
    try:
        return data.decode("utf-8-sig")  # spreadsheets put a byte order mark in front
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TrainingError(f"{path}:{line} is not UTF-8 text: {error.reason}") from None


def _json_rows(path: Path, lines: io.StringIO) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TrainingError(f"{path}:{line} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise TrainingError(f"{path}:{line} is {type(row).__name__}; each line must be a JSON object")
        yield line, row


def _csv_rows(path: Path, lines: io.StringIO) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(lines, strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                num_columns = len(reader.fieldnames or ())
                raise TrainingError(
                    f"{path}:{reader.line_num} does not have the {num_columns} columns of the first line"
                )
            yield reader.line_num, row
    except csv.Error as error:
        raise TrainingError(f"{path}:{reader.reader.line_num} is not CSV: {error}") from None


def _example(row: dict[str, Any], where: str, text_columns: Sequence[str], label_column: str) -> Example:
    for column in (*text_columns, label_column):
        if column not in row:
            raise TrainingError(f"{where} has no column {column!r}; it has {', '.join(map(repr, row))}")
    texts = [row[column] for column in text_columns]
    for column, text in zip(text_columns, texts, strict=True):
        if not isinstance(text, str) or not text.strip():
            raise TrainingError(f"{where}: column {column!r} is {text!r}; it must be a text that is not empty")
    return Example(texts[0] if len(texts) == 1 else tuple(texts), row[label_column], where)
