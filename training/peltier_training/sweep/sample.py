"""Rows drawn from a training set."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

from peltier_training.data.examples import Example


def draw(
    examples: Sequence[Example], size: int | None, dev_rows: int, seed: int
) -> tuple[list[Example], list[Example]]:
    """The first `size` examples of a shuffle, or all but `dev_rows`, and the next `dev_rows` (UniPELT section 4.1).

    A smaller draw with the same seed is a prefix of a larger one.
    """
    order = list(examples)
    random.Random(seed).shuffle(order)
    size = len(order) - dev_rows if size is None else size
    return order[:size], order[size : size + dev_rows]


def write_examples(path: Path, examples: Sequence[Example], text_columns: Sequence[str], label_column: str) -> None:
    """Write JSONL for `read_examples`."""
    with path.open("w", encoding="utf-8") as file:
        for example in examples:
            texts = (example.input,) if isinstance(example.input, str) else example.input
            row = {**dict(zip(text_columns, texts, strict=True)), label_column: example.label}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
