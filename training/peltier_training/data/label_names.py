"""The names of labels: one for equal JSON values, and groups of names that people take for one. Imports no torch."""

import math
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from peltier_adapters.spec.label import surrogate_problem

from peltier_training.errors import TrainingError, shown

_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0+")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_BOOLEANS = ("true", "false")
_MAX_ALIKE = 4


def label_name(label: Any) -> str:
    """The name of one label: a text as it is, a number or a boolean as JSON spells it. Equal numbers have one name, so
    1.0 is `1`. Raises a `TrainingError` for anything else."""
    if isinstance(label, bool):
        return str(label).lower()
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    missing = isinstance(label, float) and not math.isfinite(label)  # Python writes NaN to JSON for a missing cell
    if missing or not isinstance(label, str | int | float) or not str(label).strip():
        raise TrainingError(f"label {shown(label)} is not a label; it must be a text or a number")
    if isinstance(label, str) and not label.isascii() and (problem := surrogate_problem(label)) is not None:
        raise TrainingError(f"label {shown(label)} {problem}")
    return str(label)


def json_spelling(name: str) -> str:
    """JSON's spelling of a text that stands for a whole number or a boolean; every other text as it is. The cells of
    tables are texts: pandas writes a column of integers with a missing one as `1.0`, and booleans as `True`."""
    if (whole := _WHOLE.fullmatch(name)) is not None:
        return "0" if whole[1] == "-0" else whole[1]
    return name.lower() if name.lower() in _BOOLEANS else name


def distinct_names(names: Iterable[str], *, of_table: bool = False) -> set[str]:
    """The names, with one for those of equal numbers or booleans. A text without an equal stays as it is, unless it is
    `of_table`, whose cells have no types, and all of the column are whole numbers, or all are booleans."""
    groups: dict[str, set[str]] = {}
    for name in names:
        groups.setdefault(json_spelling(name), set()).add(name)
    has_type = of_table and (all(map(_INTEGER.fullmatch, groups)) or set(groups) <= set(_BOOLEANS))
    return {spelling if has_type or len(group) > 1 else min(group) for spelling, group in groups.items()}


def describe_alike(names: Iterable[str]) -> str | None:
    """A sentence about names that are equal but for spaces, capitals or the form of their characters; None if there are
    none."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_folded(name), []).append(name)
    alike = [group for group in groups.values() if len(group) > 1]
    if not alike:
        return None
    listed = ", ".join(shown(name) for name in alike[0][:_MAX_ALIKE])
    more = f", and {len(alike)} groups of labels are alike" if len(alike) > 1 else ""
    return (
        f"labels that differ only in spaces, capitals or the form of characters are classes apart: {listed}{more}; "
        "give them one name if they are one class."
    )


def _folded(name: str) -> str:
    folded = unicodedata.normalize("NFC", " ".join(name.split())).casefold()
    return unicodedata.normalize("NFC", folded)
