"""One row of a data file, before it is checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peltier_adapters.errors import nearest

from peltier_training.errors import TrainingError


@dataclass(frozen=True)
class RawRow:
    """The cells by column, or the `problem` that makes the row unreadable, a clause that follows its place."""

    line: int
    cells: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


def no_column(place: str | Path, column: str, columns: Sequence[str]) -> TrainingError:
    """The error for a `column` that is not among the `columns` of a file or a row."""
    has = ", ".join(map(repr, columns)) or "none"
    return TrainingError(f"{place} has no column {column!r}{nearest(column, columns)}; it has {has}")
