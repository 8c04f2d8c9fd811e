"""Examples as people have them in Python: a DataFrame, a Dataset, rows or a file."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from peltier_training.errors import TrainingError, shown


@runtime_checkable
class DataFrame(Protocol):
    """A pandas or polars DataFrame. Neither library is needed."""

    @property
    def columns(self) -> Any: ...

    def __getitem__(self, name: str, /) -> Any: ...


# The types of missing values in pandas, which need not be installed.
_MISSING = ("NAType", "NaTType")

Examples = Path | str | DataFrame | Iterable[Mapping[str, Any]] | Iterable[tuple[Any, ...]]


def write_rows(examples: Examples, path: Path, columns: Sequence[str]) -> Path:
    """The file of the examples: they themselves if they are a file, else `path`, which becomes their JSONL.

    Rows are mappings, or tuples of the values of `columns`. Raises a `TrainingError` for anything else.
    """
    if isinstance(examples, str | Path):
        return Path(examples).resolve()
    with path.open("w", encoding="utf-8", errors="surrogatepass") as file:  # the reader names a row that is no text
        for number, row in enumerate(_rows(examples), 1):
            file.write(_line(_values(row, columns, number), number))
    return path


def short_name(path: Path, folder: Path) -> Path:
    """The name in errors of a file of rows, which is in the current `folder`, a temporary one, or anywhere."""
    return path.relative_to(folder) if path.is_relative_to(folder) else path


def _rows(examples: Any) -> Iterable[Any]:
    if isinstance(examples, DataFrame) and not isinstance(examples, Mapping) and hasattr(examples, "shape"):
        names = [str(name) for name in examples.columns]
        return (dict(zip(names, row, strict=True)) for row in zip(*(examples[name] for name in names), strict=True))
    if isinstance(examples, Iterable) and not isinstance(examples, Mapping | bytes):
        return examples
    raise TrainingError(
        f"the examples are a {type(examples).__name__}; give a DataFrame, a Dataset, a list of rows or the name of a "
        "file"
    )


def _values(row: Any, columns: Sequence[str], number: int) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return {str(name): plain_value(value) for name, value in row.items()}
    if isinstance(row, tuple) and len(row) == len(columns):
        return {name: plain_value(value) for name, value in zip(columns, row, strict=True)}
    raise TrainingError(f"example {number} is {shown(row)}; it must be a mapping, or a tuple of {', '.join(columns)}")


def _line(values: Mapping[str, Any], number: int) -> str:
    try:
        return json.dumps(values, ensure_ascii=False) + "\n"
    except TypeError:
        name, value = next((name, value) for name, value in values.items() if not _is_json(value))
        raise TrainingError(
            f"example {number} has {shown(value)} as {name!r}; a value must be a text, a number, true or false, or a "
            "list of these"
        ) from None


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


def plain_value(value: Any) -> Any:
    """The value for JSON, also within lists and mappings: numpy's numbers and arrays and decimal numbers as Python's,
    and a missing value of a DataFrame as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, Mapping):
        return {name: plain_value(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(one) for one in value]
    is_missing = type(value).__name__ in _MISSING or (isinstance(value, float) and math.isnan(value))
    return None if is_missing else value
