"""Rows of files in other forms than tables. CoNLL's have a line for each word, in columns, and an empty line between
texts. SQuAD's are nested JSON: titles, paragraphs, and questions about each."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peltier_adapters.answers.tags import OUTSIDE, has_prefix
from peltier_client.bulk.data_file import DataRow

from peltier_training.errors import TrainingError

CONLL_KINDS = (".conll", ".bio", ".iob", ".iob2")
_DOCUMENT = "-DOCSTART-"
_COLUMNS = ("question", "context", "answers")
_FORM = '{"data": [{"paragraphs": [{"context": "…", "qas": [{"question": "…", "answers": […]}]}]}]}'


def read_conll(text: str, words: str, tags: str) -> list[DataRow]:
    """A row for each text, with its words in the column called `words` and their tags in `tags`.

    The first column of a line is the word and the last its tag. Columns end at tabs, or without tabs at spaces. Lines
    of `-DOCSTART-` are not read, nor those that begin with `#` and a space, unless they are of the word `#`: then the
    last column is a tag, and there are two columns or as many as in the first other line."""
    return list(_rows(text, words, tags))


def _rows(text: str, words: str, tags: str) -> Iterator[DataRow]:
    first, pairs = 0, list[tuple[str, str]]()
    problem: str | None = None
    lines = [_columns(line) for line in [*text.split("\n"), ""]]
    num_columns = next((len(cells) for cells in lines if any(cells) and not _may_be_comment(cells)), 2)
    for number, cells in enumerate(lines, 1):
        if _may_be_comment(cells) and not _is_of_hash(cells, num_columns):
            continue
        if not any(cell.strip() for cell in cells):
            if pairs or problem:
                yield DataRow(first, _cells(pairs, words, tags), problem)
            pairs, problem = [], None
            continue
        if not pairs and problem is None:
            first = number
        if len(cells) < 2:
            problem = problem or f"has no tag for {cells[0].strip()!r} in line {number}; a line has a word and its tag"
        pairs.append((cells[0].strip(), cells[-1].strip()))


def _columns(line: str) -> list[str]:
    return line.rstrip("\r").split("\t") if "\t" in line else line.split()


def _may_be_comment(cells: list[str]) -> bool:
    return bool(cells) and (cells[0] == _DOCUMENT or cells[0] == "#" or cells[0].startswith("# "))


def _is_of_hash(cells: list[str], num_columns: int) -> bool:
    """Whether the line is of the word `#`."""
    return cells[0] == "#" and len(cells) in (2, num_columns) and (cells[-1] == OUTSIDE or has_prefix(cells[-1]))


def _cells(pairs: list[tuple[str, str]], words: str, tags: str) -> dict[str, Any]:
    return {words: [word for word, _ in pairs], tags: [tag for _, tag in pairs]}


def read_squad_json(path: Path, text: str, wanted: list[str]) -> list[DataRow]:
    """A row with `question`, `context` and `answers` for each question; its line is its number in the file, from 1.

    Raises a `TrainingError` if the file has another form, or if other columns are `wanted`.
    """
    if not set(wanted) <= set(_COLUMNS):
        raise TrainingError(
            f"{path} is not a data file; its name must end in .jsonl, .csv or .tsv, or these with .gz; .json is for "
            f"SQuAD's own form, whose columns are {', '.join(_COLUMNS)}, not {', '.join(wanted)}"
        )
    try:
        found = list(_questions(json.loads(text)))
    except (ValueError, RecursionError) as error:
        raise TrainingError(f"{path} is not JSON: {error}") from None
    except (AttributeError, KeyError, TypeError):
        raise TrainingError(
            f"{path} is not in SQuAD's form, {_FORM}; put rows of another form into a .jsonl file"
        ) from None
    return [DataRow(number, cells) for number, cells in enumerate(found, 1)]


def _questions(document: Any) -> Iterator[dict[str, Any]]:
    for article in document["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answers = [] if question.get("is_impossible") else question["answers"]
                yield {"question": question["question"], "context": paragraph["context"], "answers": answers}
