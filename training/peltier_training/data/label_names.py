"""The names of labels: one for equal JSON values, and groups of names that people take for one. Imports no torch."""

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from peltier_adapters.spec.text_rules import surrogate_problem
from peltier_client.quality.label_names import BOOLEANS, json_name, json_spelling

from peltier_training.errors import TrainingError, shown

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_MAX_ALIKE = 4


def label_name(label: Any) -> str:
    """The name of one label, by `json_name`. Raises a `TrainingError` for what is neither a text, a number nor a
    boolean."""
    if (name := json_name(label)) is None:
        raise TrainingError(f"label {shown(label)} is not a label; it must be a text or a number")
    if not name.isascii() and (problem := surrogate_problem(name)) is not None:
        raise TrainingError(f"label {shown(label)} {problem}")
    return name


def distinct_names(names: Iterable[str], *, of_table: bool = False) -> set[str]:
    """The names, with one for those of equal numbers or booleans. A text without an equal stays as it is, unless it is
    `of_table`, whose cells have no types, and all of the column are whole numbers, or all are booleans."""
    groups: dict[str, set[str]] = {}
    for name in names:
        groups.setdefault(json_spelling(name), set()).add(name)
    has_type = of_table and (all(map(_INTEGER.fullmatch, groups)) or set(groups) <= set(BOOLEANS))
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
