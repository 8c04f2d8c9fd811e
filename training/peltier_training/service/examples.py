"""The files of a training's examples, as bytes of a tenant and as files for the readers. Imports no torch."""

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from peltier_adapters.spec.tasks import EMBEDDING_TYPES, TaskType
from peltier_client.bulk.data_file import data_kind

from peltier_training.data.data import Data, read_file, write_examples
from peltier_training.data.examples import Example
from peltier_training.data.formats import CONLL_KINDS
from peltier_training.data.labels import find_labels
from peltier_training.errors import TrainingError, refuse, shown

MAX_FILE_BYTES = 256 * 2**20
MAX_LINE_BYTES = 2**20
_KINDS = (".jsonl", ".csv", ".tsv", ".json", *CONLL_KINDS)
_START_BYTES = 4_096
_MARKS = b"\xef\xbb\xbf \t\r\n"
TEXT_COLUMN, LABEL_COLUMN = "text", "label"
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_NAMED: tuple[TaskType, ...] = ("classification", "multilabel", "token-classification")
_TRAIN, _VALIDATION = Path("train-rows.jsonl"), Path("validation-rows.jsonl")


def file_kind(name: str, start: bytes) -> str:
    """The suffix for the readers, by the name of a file, else by its first bytes: JSONL begins with a brace.

    Raises a `TrainingError` for a compressed file, whose size is unknown before it is read.
    """
    if name.lower().endswith(".gz") or start.startswith(b"\x1f\x8b"):
        raise TrainingError(f"the file {shown(name)} is compressed; send it as it is, .jsonl or .csv")
    kind = data_kind(Path(name.replace("/", "_") or "_"))
    if kind in _KINDS:
        return kind
    return ".jsonl" if start.lstrip(_MARKS).startswith((b"{", b"[")) else ".csv"


def check_size(name: str, num_bytes: int) -> None:
    """Raise a `TrainingError` for a file of more than `MAX_FILE_BYTES`."""
    if num_bytes > MAX_FILE_BYTES:
        raise TrainingError(
            f"the file {shown(name)} has {num_bytes:,} bytes; a training reads at most {MAX_FILE_BYTES:,}"
        )


def write_file(directory: Path, part: str, name: str, data: bytes, size_bytes: int) -> Path:
    """Write the bytes as `part` with the suffix of their kind; returns the path relative to `directory`.

    Raises a `TrainingError` for too many bytes, or others than the `size_bytes` that the file was said to have."""
    check_size(name, len(data))
    if len(data) != size_bytes:
        raise TrainingError(f"the file {shown(name)} has {len(data):,} bytes; it was stored with {size_bytes:,}")
    path = Path(f"{part}{file_kind(name, data[:_START_BYTES])}")
    (directory / path).write_bytes(data)
    return path


def check_lines(path: Path) -> None:
    """Raise a `TrainingError` for a line of more than `MAX_LINE_BYTES`, which no reader has to hold then."""
    if path.suffix == ".json":  # SQuAD's form is one line
        return
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise TrainingError(f"{path}:{number} has more than {MAX_LINE_BYTES:,} bytes; shorten its texts")


def write_columns(source: Path, target: Path) -> None:
    """Write the rows of the JSONL file `source` to `target`, chats as columns and every other row as it is.

    A row keeps its line. Raises a `TrainingError` that names the first line which is no chat.
    """
    with source.open("rb") as lines, target.open("wb") as written:
        for number, line in enumerate(lines, 1):
            try:
                written.write(_converted(line))
            except TrainingError as error:
                raise TrainingError(f"{source}:{number} {error}") from None


def read_chat(row: Mapping[str, Any]) -> dict[str, str]:
    """A chat as columns, its label without the spaces and line ends around it. Raises a `TrainingError` with a clause
    that follows the row's place."""
    messages = row["messages"]
    if not isinstance(messages, list):
        raise TrainingError(f"has messages {shown(messages)}; they must be a list of objects with role and content")
    for place, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise TrainingError(f"has message {place} {shown(message)}; its role must be one of {', '.join(_ROLES)}")
    answer = _last(messages, "assistant")
    if answer is None:
        raise TrainingError("has no message of the assistant, which is the label")
    question = _last(messages[:answer], "user")
    if question is None:
        raise TrainingError("has no message of the user before the assistant's, which is the text")
    return {TEXT_COLUMN: _text(messages, question), LABEL_COLUMN: _text(messages, answer).strip()}


def _converted(line: bytes) -> bytes:
    if not line.strip():
        return line
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return line  # the reader of rows says what is wrong with it
    if not isinstance(row, dict) or "messages" not in row:
        return line
    return f"{json.dumps(read_chat(row), ensure_ascii=False)}\n".encode(errors="surrogatepass")


def _last(messages: Sequence[Mapping[str, Any]], role: str) -> int | None:
    fits = (message["role"] == role and message.get("weight") != 0 for message in reversed(messages))
    return next((len(messages) - 1 - place for place, fit in enumerate(fits) if fit), None)


def _text(messages: Sequence[Mapping[str, Any]], place: int) -> str:
    """The content of a message: a text, or parts of a text."""
    content = messages[place].get("content")
    if isinstance(content, list) and content and all(_is_text(part) for part in content):
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise TrainingError(f"has message {place} with the content {shown(content)}; it must be a text")
    return content


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


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
