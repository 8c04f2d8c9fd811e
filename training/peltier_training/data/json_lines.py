"""Rows of a JSONL file."""

import io
import json
from pathlib import Path

from peltier_training.data.raw_row import RawRow, no_column


def read_json_lines(path: Path, text: str, wanted: list[str]) -> list[RawRow]:
    """A row for each line that is not blank. Raises a `TrainingError` for a column of `wanted` that no line has."""
    lines = enumerate(io.StringIO(text, newline=""), 1)
    rows = [_row(number, line) for number, line in lines if line.strip()]
    columns = list(dict.fromkeys(column for row in rows for column in row.cells))
    for column in wanted:
        if columns and column not in columns:
            raise no_column(path, column, columns)
    return rows


def _row(number: int, line: str) -> RawRow:
    try:
        cells = json.loads(line)
    except json.JSONDecodeError as error:
        return RawRow(number, problem=f"is not JSON: {error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:  # too many digits or brackets
        return RawRow(number, problem=f"is not JSON: {error}")
    if not isinstance(cells, dict):
        return RawRow(number, problem=f"is {type(cells).__name__}; each line must be a JSON object")
    return RawRow(number, cells)
