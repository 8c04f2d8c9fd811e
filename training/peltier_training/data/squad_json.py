"""Rows of a file in SQuAD's own nested JSON: titles, paragraphs, and questions about each."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peltier_client.bulk.data_file import DataRow

from peltier_training.errors import TrainingError

_COLUMNS = ("question", "context", "answers")
_FORM = '{"data": [{"paragraphs": [{"context": "…", "qas": [{"question": "…", "answers": […]}]}]}]}'


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
