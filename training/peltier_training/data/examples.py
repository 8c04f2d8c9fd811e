"""Labelled examples from JSONL, CSV and TSV files and from SQuAD's JSON, plain or gzipped. Imports no torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from peltier_adapters.artifact.manifest import TaskInput
from peltier_adapters.spec.tasks import TaskSpec
from peltier_adapters.spec.text_rules import is_visible
from peltier_backbone.text.token_places import Span
from peltier_client.bulk.data_file import DataRow, data_kind, no_column, read_text
from peltier_client.bulk.data_file import read_rows as read_data_rows
from peltier_client.errors import InvalidInput

from peltier_training.data import formats
from peltier_training.errors import BadRow, TrainingError, refuse, shown

T = TypeVar("T")


@dataclass(frozen=True)
class Example:
    """One input, its label as in the file, and its place in `where` (file:line)."""

    input: TaskInput
    label: Any
    where: str


CheckExample = Callable[[Example], Example]


@dataclass(frozen=True)
class LabelledRows:
    """The examples of a file, and its invalid rows."""

    examples: tuple[Example, ...]
    bad: tuple[BadRow, ...] = ()


def read_examples(path: Path, text_columns: Sequence[str], label_column: str) -> list[Example]:
    """The rows of `read_rows`. Raises a `TrainingError` that names every invalid row."""
    rows = read_rows(path, text_columns, label_column)
    refuse(rows.bad)
    return list(rows.examples)


def read_rows(
    path: Path, text_columns: Sequence[str], label_column: str | None, check: CheckExample | None = None, *,
    words: bool = False,
) -> LabelledRows:  # fmt: skip
    """Read `path` (.jsonl, .csv, .tsv or SQuAD's .json, also .gz); two text columns are a pair, three a triple. `check`
    may change an example, or raise a `TrainingError` about its label. Without a `label_column` labels are None. With
    `words` a text may be a list of words, whose label is then `OfWords`, and `path` may be a CoNLL file.

    Raises a `TrainingError` that names the file and the rule that it breaks.
    """
    if len(text_columns) not in (1, 2, 3):
        raise TrainingError(f"{len(text_columns)} text columns were given; a task has one, two or three")
    examples, bad = [], []
    wanted = text_columns if label_column is None else (*text_columns, label_column)
    for row in _data_rows(path, [*dict.fromkeys(wanted)], words=words):
        where = f"{path}:{row.line}"
        try:
            if words:
                assert label_column is not None, "words have tags"
                row = _joined(row, where, text_columns, label_column)
            example = _example(row, where, text_columns, label_column)
            examples.append(check(example) if check else example)
        except TrainingError as error:
            bad.append(BadRow(path, row.line, str(error).removeprefix(where)))
    if not examples and not bad:
        raise TrainingError(f"{path} has no examples")
    return LabelledRows(tuple(examples), tuple(bad))


def has_values(path: Path, text_columns: Sequence[str], column: str) -> bool:
    """Whether a row of the file has a value in a `column` besides `text_columns`."""
    return any(
        row.cells.get(column) is not None for row in _data_rows(path, [*dict.fromkeys(text_columns)], words=False)
    )


def subsample(examples: Sequence[Example], num_inputs: int | None) -> list[Example]:
    """The examples of at most `num_inputs` distinct inputs, evenly spaced; None keeps all."""
    inputs = list(dict.fromkeys(example.input for example in examples))
    if num_inputs is None or num_inputs >= len(inputs):
        return list(examples)
    kept = _spread(inputs, num_inputs)
    return [example for example in examples if example.input in kept]


def subsample_queries(examples: Sequence[Example], num_rows: int | None) -> list[Example]:
    """About `num_rows` examples of a ranking: all those of some queries, evenly spaced; None keeps all."""
    queries = list(dict.fromkeys(example.input[0] for example in examples))
    if num_rows is None or num_rows >= len(examples):
        return list(examples)
    kept = _spread(queries, max(1, num_rows * len(queries) // len(examples)))
    return [example for example in examples if example.input[0] in kept]


def _spread(values: Sequence[T], num: int) -> set[T]:
    return {values[number * len(values) // num] for number in range(num)}


def _joined(row: DataRow, where: str, text_columns: Sequence[str], label_column: str) -> DataRow:
    """The row with a text for its list of words."""
    cells = dict(row.cells)
    for column in text_columns:
        if isinstance(own := cells.get(column), list):
            cells[column], spans = join_words(own, column, where)
            if label_column in cells:
                cells[label_column] = OfWords(spans, cells[label_column])
    return replace(row, cells=cells)


def _data_rows(path: Path, wanted: list[str], *, words: bool) -> list[DataRow]:
    kind = data_kind(path)
    try:
        if words and kind in formats.CONLL_KINDS:
            return formats.read_conll(read_text(path), wanted[0], wanted[-1])
        if kind == ".json":
            return formats.read_squad_json(path, read_text(path), wanted)
        return read_data_rows(path, wanted)
    except InvalidInput as error:
        raise TrainingError(error.message) from None


def _example(row: DataRow, where: str, text_columns: Sequence[str], label_column: str | None) -> Example:
    if row.problem is not None:
        raise TrainingError(f"{where} {row.problem}")
    for column in (*text_columns, *([] if label_column is None else [label_column])):
        if column not in row.cells:
            raise TrainingError(f"{where} has {no_column(column, row.cells)}")
    for column in text_columns:
        _check_text(row.cells[column], column, where)
    texts = tuple(row.cells[column] for column in text_columns)
    label = None if label_column is None else row.cells[label_column]
    return Example(texts[0] if len(texts) == 1 else texts, label, where)


def _check_text(text: Any, column: str, where: str) -> None:
    if not isinstance(text, str) or not is_visible(text):
        raise TrainingError(f"{where}: column {column!r} is {shown(text)}; it must be a non-empty text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        place = f"{text[error.start]!r} at character {error.start}"
        raise TrainingError(f"{where}: an input text has a lone surrogate {place} of column {column!r}") from None


@dataclass(frozen=True)
class OfWords:
    """A label cell beside a list of words, and the characters of each word in the text."""

    words: tuple[Span, ...]
    cell: Any


def join_words(words: list[Any], column: str, where: str) -> tuple[str, tuple[Span, ...]]:
    """The words as one text, with spaces between them, and the characters of each. Raises a `TrainingError` for a word
    that is not a text."""
    spans, start = list[Span](), 0
    for number, word in enumerate(words):
        if not isinstance(word, str) or not word.strip():
            raise TrainingError(
                f"{where}: word {number} of column {column!r} is {shown(word)}; words are non-empty texts"
            )
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return " ".join(words), tuple(spans)


def are_scored(examples: Sequence[Example]) -> bool:
    """Whether pairs have scores. Otherwise the texts of each pair belong together."""
    return examples[0].label is not None


def scale_scores(scores: Sequence[float]) -> list[float]:
    """Scores as cosines: as they are if all are from -1 to 1, else linearly from 0 for the smallest to 1."""
    least, most = min(scores), max(scores)
    if least >= -1 and most <= 1:
        return list(scores)
    return [(score - least) / (most - least or 1.0) for score in scores]


def number_texts(examples: Sequence[Example]) -> list[tuple[int, int]]:
    """The number of each text of each pair; equal texts have one number."""
    known: dict[str, int] = {}
    pairs = (texts_of(example) for example in examples)
    return [(known.setdefault(a, len(known)), known.setdefault(b, len(known))) for a, b in pairs]


def texts_of(example: Example) -> tuple[str, str]:
    assert not isinstance(example.input, str), "the task has two text columns"
    return example.input[0], example.input[1]


def inputs_of(task: TaskSpec, examples: Sequence[Example]) -> list[TaskInput]:
    """The inputs of the task in `examples`: single texts of an embedding's pairs."""
    if not task.embeds:
        return [example.input for example in examples]
    return [text for example in examples for text in texts_of(example)]
