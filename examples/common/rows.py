"""Labelled rows, one JSON object a line."""

import gzip
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data"

Row = dict[str, Any]


def read_rows(file: Path) -> list[Row]:
    """The rows of a compressed file."""
    with gzip.open(file, "rt") as lines:
        return [json.loads(line) for line in lines]


def write_rows(file: Path, rows: Iterable[Row]) -> Path:
    """Writes the rows to a file that is not compressed; returns its path."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def shuffled(rows: Iterable[Row]) -> list[Row]:
    """The rows in a random order, which is the same in every run."""
    rows = list(rows)
    random.Random(0).shuffle(rows)
    return rows
