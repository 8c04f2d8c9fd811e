"""Rows that cannot be used, as one sentence says them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from peltier_training.errors import TrainingError

_MAX_NAMED = 20


@dataclass(frozen=True)
class BadRow:
    """Where a row stands, and the clause behind its place that says why it cannot be used."""

    path: Path
    line: int
    reason: str


def describe(bad: Sequence[BadRow]) -> list[str]:
    """The first of them, those of one file and reason together, and how many more there are."""
    groups: dict[tuple[Path, str], list[str]] = {}
    for row in bad[:_MAX_NAMED]:
        groups.setdefault((row.path, row.reason), []).append(str(row.line))
    named = [f"{path}:{', '.join(lines)}{reason}" for (path, reason), lines in groups.items()]
    more = len(bad) - _MAX_NAMED
    return [*named, *([f"and {more} more"] if more > 0 else [])]


def refuse(bad: Sequence[BadRow], hint: str = "") -> None:
    """Raise a `TrainingError` that names the `bad` rows, where there are any; `hint` says what to do about them."""
    if bad:
        count = f"{len(bad)} rows cannot be used: " if len(bad) > 1 else ""
        raise TrainingError(f"{count}{'; '.join(describe(bad))}{hint}")
