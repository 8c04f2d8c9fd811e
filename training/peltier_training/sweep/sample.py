"""Rows drawn from a training set."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from peltier_training.data.examples import Example
from peltier_training.data.gold_spans import GoldSpan
from peltier_training.data.tags import Tagged, word_tags


def draw(
    examples: Sequence[Example], size: int | None, dev_rows: int, seed: int, *, by_query: bool = False
) -> tuple[list[Example], list[Example]]:
    """The first `size` examples of a shuffle, or all but `dev_rows`, and the next `dev_rows` (UniPELT section 4.1).

    A smaller draw with the same seed is a prefix of a larger one. With `by_query` all examples of one first text,
    such as the documents of a query, are drawn together, so a few more examples may be drawn.
    """
    order = list(_queries(examples).values()) if by_query else [[example] for example in examples]
    random.Random(seed).shuffle(order)
    groups = iter(order)
    train = _take(groups, len(examples) - dev_rows if size is None else size)
    return train, _take(groups, dev_rows)


def _queries(examples: Sequence[Example]) -> dict[str, list[Example]]:
    found: dict[str, list[Example]] = {}
    for example in examples:
        found.setdefault(example.input[0], []).append(example)
    return found


def _take(groups: Iterator[list[Example]], num: int) -> list[Example]:
    """The examples of the next groups, until there are `num`."""
    taken: list[Example] = []
    while len(taken) < num and (group := next(groups, None)) is not None:
        taken += group
    return taken


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
        return (words,), word_tags(label.words, label.entities)
    if isinstance(label, Tagged):
        return texts, [entity._asdict() for entity in label.entities]
    if isinstance(label, tuple) and label and all(isinstance(one, GoldSpan) for one in label):
        return texts, {"text": [span.text for span in label], "answer_start": [span.start for span in label]}
    return texts, label
