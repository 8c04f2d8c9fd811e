"""A sweep's table for terminals, as Markdown, CSV and JSON."""

import csv
import io
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.table import Table as RichTable
from rich.text import Text

from peltier_training.sweep.table import EPOCH_SECONDS, MEMORY, PARAMETERS, SECONDS, Stat, SweepTable, TableRow

_FAILED = "failed"
_DIGITS: Mapping[str, int] = {PARAMETERS: 0, EPOCH_SECONDS: 2, SECONDS: 1, MEMORY: 0}
_METRIC_DIGITS = 4


def to_rich(table: SweepTable) -> RichTable:
    """For the terminal."""
    shown = RichTable()
    for number, name in enumerate(_header(table)):
        shown.add_column(Text(name), justify="left" if number < len(table.by) else "right")
    for row in table.rows:
        shown.add_row(*(Text(cell) for cell in _cells(table, row)))
    return shown


def to_markdown(table: SweepTable) -> str:
    """For GitHub."""
    header = _header(table)
    rule = ["---"] * len(table.by) + ["--:"] * (len(header) - len(table.by))
    lines = [header, rule, *(_cells(table, row) for row in table.rows)]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def to_csv(table: SweepTable) -> str:
    """Every number in a separate column, not rounded."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    parts = [f"{name} {part}" for name in table.columns for part in ("mean", "sd", "count")]
    writer.writerow([*table.by, *parts, _FAILED])
    for row in table.rows:
        stats = [row.cells.get(name) for name in table.columns]
        numbers = [number for stat in stats for number in ((stat.mean, stat.sd, stat.count) if stat else ("", "", 0))]
        writer.writerow([*row.labels, *numbers, row.failed])
    return file.getvalue()


def to_json(table: SweepTable) -> list[dict[str, Any]]:
    """One object per row."""
    return [
        {
            "group": dict(zip(table.by, row.labels, strict=True)),
            "values": {name: asdict(stat) for name, stat in row.cells.items()},
            _FAILED: row.failed,
        }
        for row in table.rows
    ]


def _header(table: SweepTable) -> list[str]:
    return [*table.by, *table.columns, *([_FAILED] if table.has_failures else [])]


def _cells(table: SweepTable, row: TableRow) -> list[str]:
    stats = [_shown(name, row.cells.get(name)) for name in table.columns]
    return [*row.labels, *stats, *([str(row.failed)] if table.has_failures else [])]


def _shown(name: str, stat: Stat | None) -> str:
    if stat is None:
        return ""
    mean = f"{stat.mean:,.{_DIGITS.get(name, _METRIC_DIGITS)}f}"
    if name in _DIGITS or stat.sd is None:  # costs show only the mean
        return mean
    return f"{mean} ± {stat.sd:.{_METRIC_DIGITS}f}"
