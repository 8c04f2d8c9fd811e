"""Writes examples as JSONL that is read again as the same."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peltier_training.data.examples import Example
from peltier_training.data.gold import GoldSpan, Tagged


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
